//! Simulated disk that loads share: each of them gets an equal part of its rate. What was read stays in the
//! page cache.

/// Reads under way; work is in microseconds at the full rate.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// What is left to read of each model's file.
    cold: Vec<u64>,
    /// The same of files that nothing has read, if the page cache forgets them.
    forgotten: Option<Vec<u64>>,
    reading: Vec<bool>,
    /// Milliseconds.
    at: u64,
}

impl Disk {
    pub(super) fn new(cold: impl Iterator<Item = u64>, forgets: bool) -> Self {
        let cold: Vec<u64> = cold.map(|milliseconds| milliseconds * 1000).collect();
        let forgotten = forgets.then(|| cold.clone());
        Self { reading: vec![false; cold.len()], cold, forgotten, at: 0 }
    }

    /// The state at this time.
    pub(super) fn advance(&mut self, now: u64) {
        let part = (now - self.at) * 1000 / self.readers().max(1);
        for (cold, reading) in self.cold.iter_mut().zip(&mut self.reading) {
            if *reading {
                *cold = cold.saturating_sub(part);
                *reading = *cold > 0;
            }
        }
        self.at = now;
    }

    pub(super) fn read(&mut self, model: usize) {
        self.reading[model] = self.cold[model] > 0;
    }

    /// The model's engine has ended.
    pub(super) fn leave(&mut self, model: usize) {
        self.reading[model] = false;
        if let Some(forgotten) = &self.forgotten {
            self.cold[model] = forgotten[model];
        }
    }

    pub(super) fn is_warm(&self, model: usize) -> bool {
        self.cold[model] == 0
    }

    /// The time at which the next read ends, if nothing changes until then.
    pub(super) fn next(&self) -> Option<u64> {
        let left =
            self.cold.iter().zip(&self.reading).filter(|(_, reading)| **reading).map(|(cold, _)| *cold);
        Some(self.at + (left.min()? * self.readers()).div_ceil(1000).max(1))
    }

    fn readers(&self) -> u64 {
        u64::try_from(self.reading.iter().filter(|reading| **reading).count()).unwrap()
    }
}
