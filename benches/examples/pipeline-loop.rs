//! `pipeline-loop KIND COUNT`: processes a frame COUNT times, for instruction counts: run it under callgrind with N
//! and with 2N, and divide the difference by N.
//!
//! `pipeline-loop`: for each kind the best of many short runs, in nanoseconds a frame. On a machine that others use
//! too the best run is the one that nobody disturbed; criterion's mean is not.

use std::{hint::black_box, time::Instant};

use benches::packets::{KINDS, frames, pipeline};
use dataplane::pipeline::Pipeline;

/// Frames a run: long enough for the clock, short enough to fit between two interruptions.
const RUN: u32 = 2_000;
const RUNS: u32 = 2_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let pipeline = pipeline();
    let Some(kind) = arguments.next() else {
        for kind in KINDS {
            println!("{kind:<16} {:7.1} ns", best(&pipeline, &frames(kind)));
        }
        return;
    };
    let count = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(RUN);
    run(&pipeline, &frames(&kind), count);
}

fn run(pipeline: &Pipeline, frames: &[Vec<u8>], count: u32) {
    let mut out = vec![0; 2_048];
    for (frame, _) in frames.iter().cycle().zip(0..count) {
        black_box(pipeline.process(black_box(frame), black_box(&mut out)));
    }
}

fn best(pipeline: &Pipeline, frames: &[Vec<u8>]) -> f64 {
    let once = || {
        let start = Instant::now();
        run(pipeline, frames, RUN);
        start.elapsed().as_secs_f64() * 1e9 / f64::from(RUN)
    };
    (0..RUNS).map(|_| once()).fold(f64::INFINITY, f64::min)
}
