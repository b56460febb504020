// A link from a request to a tracing UI, by a template that this browser keeps.

import { element } from "./base/dom.js";
import { setSetting, setting } from "./base/settings.js";

const NAME = "link trace";

/** Shows the link to a request in `place`, and the field of its template. */
export function showTraceLink(place, traceId) {
  const link = element("span", {});
  const field = element("input", {
    id: "trace-template",
    type: "text",
    spellcheck: "false",
    placeholder: "https://jaeger.example.org/trace/{trace_id}",
  });
  field.value = setting(NAME);
  field.addEventListener("change", () => {
    setSetting(NAME, field.value.trim());
    fill();
  });
  const label = element("label", { class: "template" }, "Address of a request in your tracing UI, with {trace_id}", field);
  place.replaceChildren(link, element("details", {}, element("summary", {}, "Link to a tracing UI"), label));
  fill();

  function fill() {
    const href = addressOf(setting(NAME), traceId);
    link.replaceChildren(...(href ? [element("a", { href, target: "_blank", rel: "noreferrer" }, "Open in the tracing UI")] : []));
  }
}

/** Returns the address of a request, or "" if the template is not one of http or https. */
function addressOf(template, traceId) {
  if (!template.includes("{trace_id}")) return "";
  try {
    const url = new URL(template.replaceAll("{trace_id}", encodeURIComponent(traceId)));
    return ["http:", "https:"].includes(url.protocol) ? url.href : "";
  } catch {
    return "";
  }
}
