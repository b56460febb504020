// Works 20 functions deep, through a closure and a trait object, until it is killed. Says when it is ready, and waits for a line.
use std::hint::black_box;

#[inline(never)]
fn spin() -> u64 {
    let mut sum = 0u64;
    for i in 0..20_000_000u64 {
        sum = black_box(sum.wrapping_add(i));
    }
    sum
}

#[inline(never)]
fn descend(depth: u32, last: &dyn Fn() -> u64) -> u64 {
    let below = if depth == 0 { last() } else { descend(depth - 1, last) };
    black_box(below) + 1
}

fn main() {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    loop {
        black_box(descend(20, &|| spin() + 1));
    }
}
