//! Finds the processes that hold a card's memory, from two reports of the kernel: fdinfo, and AMD's compute
//! driver (KFD).

use std::collections::BTreeMap;

use plimsoll_base::Bytes;

use super::card::Board;
use super::fdinfo::{self, GpuUse, saturating_sum};
use super::files::CardFiles;
use super::kfd;
use super::survey::Found;
use crate::Holder;

/// Memory of each process on each card, by the two reports on it.
///
/// DECISION: of one process and card the larger report counts. Memory of ROCm is missing in fdinfo on many
/// kernels, and memory of Vulkan in KFD on all; where both have it, it is the same memory.
#[derive(Default)]
pub(super) struct Processes(BTreeMap<(u32, usize), (GpuUse, Option<Bytes>)>);

impl Processes {
    pub(super) fn read(files: &impl CardFiles, found: &[Found]) -> Self {
        let mut all: BTreeMap<(u32, usize), (GpuUse, Option<Bytes>)> = BTreeMap::new();
        for ((pid, address), usage) in fdinfo::processes(files) {
            let at = found.iter().position(|found| found.card.address.as_ref() == Some(&address));
            if let Some(at) = at {
                all.entry((pid, at)).or_default().0 = usage;
            }
        }
        for ((pid, gpu), bytes) in kfd::processes(files) {
            if let Some(at) = found.iter().position(|found| found.gpu == Some(gpu)) {
                all.entry((pid, at)).or_default().1 = Some(bytes);
            }
        }
        Self(all)
    }

    fn used((fdinfo, kfd): (GpuUse, Option<Bytes>), board: Option<Board>) -> Option<Bytes> {
        let of_fdinfo = if board == Some(Board::Shared) { fdinfo.sum() } else { fdinfo.on_card };
        of_fdinfo.max(kfd)
    }

    /// What all processes together are known to hold of a card.
    pub(super) fn on(&self, number: usize, board: Option<Board>) -> Bytes {
        let here = self.0.iter().filter(|((_, at), _)| *at == number);
        let used = here.filter_map(|(_, reports)| Self::used(*reports, board));
        used.fold(Bytes::ZERO, saturating_sum)
    }

    pub(super) fn holders(&self, files: &impl CardFiles, found: &[Found]) -> Vec<Holder> {
        let holder = |(&(pid, at), &reports): (&(u32, usize), &(GpuUse, Option<Bytes>))| {
            let card = &found.get(at)?.card;
            let used = Self::used(reports, card.board);
            let outside = reports.0.on_host.filter(|_| card.board == Some(Board::Own));
            let holds = |bytes: Option<Bytes>| bytes.is_some_and(|bytes| !bytes.is_zero());
            (used.is_none() || holds(used) || holds(outside)).then(|| Holder {
                card: card.id.clone(),
                pid,
                used,
                outside: outside.filter(|bytes| !bytes.is_zero()),
                evicted: reports.0.evicted.filter(|_| card.board == Some(Board::Own)),
                name: files.value(&format!("proc/{pid}/comm")),
            })
        };
        self.0.iter().filter_map(holder).collect()
    }
}
