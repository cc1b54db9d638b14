//! Reader of tegrastats lines and of the L4T release (NVIDIA Jetson) in logs.

use plimsoll_host::{Release, TegraStats};

use crate::facts::Facts;
use crate::pattern::Pattern;

pub(super) fn read(facts: &mut Facts, pattern: Pattern, text: &str) {
    match pattern {
        // The kernel's own numbers are more exact than used-from-total.
        Pattern::Tegrastats if !facts.says(Pattern::Meminfo) => {
            if let Some(stats) = TegraStats::read(text) {
                let host = &mut facts.host;
                host.total = Some(stats.total);
                host.available = Some(stats.total.saturating_sub(stats.used));
            }
        }
        Pattern::Release => {
            if let Some(release) = release(text) {
                facts.release = Some(release);
            }
        }
        _ => {}
    }
}

/// The line of `/etc/nv_tegra_release`, `L4T 36.4.7` or `R36.4.7`.
fn release(text: &str) -> Option<Release> {
    Release::read(text).or_else(|| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
        let mut releases = words.filter_map(|word| word.trim_end_matches('.').parse::<Release>().ok());
        // Other numbers of this shape are kernels and CUDA versions.
        releases.find(|release| (32..=39).contains(&release.major))
    })
}
