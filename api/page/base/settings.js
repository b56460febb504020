// What a person chose for this browser: colours, time zone, links to source files. Kept in its local storage.

const PREFIX = "icestream.";
const listeners = [];

/** Returns a setting, or "" if it was never set. */
export function setting(name) {
  try {
    return localStorage.getItem(PREFIX + name) ?? "";
  } catch {
    return ""; // a browser without storage keeps nothing
  }
}

/** Sets a setting ("" removes it), and tells the listeners. */
export function setSetting(name, value) {
  try {
    if (value) localStorage.setItem(PREFIX + name, value);
    else localStorage.removeItem(PREFIX + name);
  } catch {
    // As above: then it holds until the page is left, if at all.
  }
  tell(name);
}

function tell(name) {
  for (const listener of listeners) listener(name);
}

// What is chosen in another tab holds here, too.
window.addEventListener("storage", ({ key }) => {
  if (key?.startsWith(PREFIX)) tell(key.slice(PREFIX.length));
});

/** Calls `act` with the name of each setting that changes. */
export const onSetting = (act) => listeners.push(act);

export const isUtc = () => setting("zone") === "utc";
