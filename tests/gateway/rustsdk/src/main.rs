//! Works for the seconds of CPU that its second argument says, and pushes its profile to the address in the first one.

use pyroscope::backend::{pprof_backend, BackendConfig, PprofConfig};
use pyroscope::pyroscope::PyroscopeAgentBuilder;
use std::hint::black_box;
use std::time::{Duration, Instant};

#[inline(never)]
fn busy_function(seconds: f64) -> u64 {
    let started = Instant::now();
    let mut sum = 0u64;
    while started.elapsed().as_secs_f64() < seconds {
        for number in 0..100_000u64 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
    sum
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let backend = pprof_backend(PprofConfig::default(), BackendConfig::default());
    let agent = PyroscopeAgentBuilder::new(&arguments[1], "sdk.rust", 100, "pyroscope-rs", "2.1.5", backend)
        .tags(vec![("region", "eu")])
        .upload_interval(Duration::from_secs(1))
        .build()
        .unwrap();
    let running = agent.start().unwrap();
    let (add_tag, _) = running.tag_wrapper();
    add_tag("endpoint".to_string(), "checkout".to_string()).unwrap();
    println!("{}", busy_function(arguments[2].parse().unwrap()));
    running.stop().unwrap().shutdown();
}
