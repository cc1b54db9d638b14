//! Samples of a trace replay for charts: a bounded number of time spans, each with its peaks of live and
//! reserved memory.

use alloc::vec::Vec;

use super::{ReplayOutcome, Sample};

pub(super) struct Samples {
    /// Steps of a part.
    every: usize,
    current: Option<Sample>,
    parts: Vec<Sample>,
}

impl Samples {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            // Parts of equal length in steps, since a trace has no time that could be trusted.
            every: steps.div_ceil(ReplayOutcome::SAMPLES).max(1),
            current: None,
            parts: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, sample: Sample) {
        let before = self.current.unwrap_or_default();
        self.current = Some(Sample {
            step: sample.step,
            live: before.live.max(sample.live),
            reserved: before.reserved.max(sample.reserved),
        });
        if (sample.step + 1).is_multiple_of(self.every) {
            self.parts.extend(self.current.take());
        }
    }

    pub(super) fn finish(mut self) -> Vec<Sample> {
        self.parts.extend(self.current);
        self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_peak_is_lost_and_there_are_never_more_parts_than_wanted() {
        for steps in [1, 511, 512, 513, 100_000] {
            let mut samples = Samples::new(steps);
            for step in 0..steps {
                let live = if step == steps / 2 { 7 } else { 1 };
                samples.add(Sample { step, live, reserved: 9 });
            }
            let parts = samples.finish();
            assert!(parts.len() <= ReplayOutcome::SAMPLES, "{steps}");
            assert_eq!(parts.last().map(|part| part.step), Some(steps - 1));
            assert_eq!(parts.iter().filter(|part| part.live == 7).count(), 1);
        }
    }
}
