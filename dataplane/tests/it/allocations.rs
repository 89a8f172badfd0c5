//! The packet path allocates nothing, for any verdict.

use crate::support::vectors::{PIPELINE, all, with_echo};

#[test]
fn no_vector_allocates() {
    let vectors = all();
    let pipelines: Vec<_> = vectors.iter().map(|v| with_echo(v.echo)).collect();
    let mut counters = dataplane::pipeline::Counters::new(&PIPELINE);
    let mut out = vec![0; 4_096];
    let counted = allocation_counter::measure(|| {
        for (vector, pipeline) in vectors.iter().zip(&pipelines) {
            counters.count(&pipeline.process(&vector.frame, &mut out));
        }
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert!(allocation_counter::measure(|| drop(vec![1_u8; 64])).count_total > 0, "the counter counts");
}
