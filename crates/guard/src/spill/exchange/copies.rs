//! Copies the bytes of two parts, one on the card and one in host memory, before the parts change places.
//! Each direction has a CUDA stream of guard's own.

use super::SPARES;
use super::frames::Frames;
use crate::clock;
use crate::driver::{CuResult, CuStream, DevicePointer, SUCCESS};
use crate::spill::own_stream::OwnStream;

mod real {
    use super::*;

    crate::driver::real! {
        by INTERFACE;
        cuMemcpyDtoDAsync_v2(to: DevicePointer, from: DevicePointer, size: u64, stream: CuStream);
    }
}

#[derive(Debug)]
pub(super) struct CopyStreams {
    to_host: OwnStream,
    to_card: OwnStream,
}

impl CopyStreams {
    pub(super) fn new() -> Option<Self> {
        Some(Self { to_host: OwnStream::new()?, to_card: OwnStream::new()? })
    }

    /// Copies each pair of granules to the spares: what leaves the card to the one in host memory, and what
    /// comes to it to that of the card. There are no more pairs than spares.
    pub(super) fn copy(
        &self,
        frames: &Frames,
        pairs: impl Iterator<Item = (DevicePointer, DevicePointer)>,
    ) -> Result<(), CuResult> {
        let mut copied = SUCCESS;
        for (number, (leaves, comes)) in pairs.enumerate() {
            let Some((card, host)) = frames.spares(number) else { break };
            let copies = [(host, leaves, &self.to_host), (card, comes, &self.to_card)];
            let copy = |(to, from, stream): (_, _, &OwnStream)| {
                // SAFETY: granules that are mapped; the stream is ours.
                unsafe { real::cuMemcpyDtoDAsync_v2(to, from, frames.granule, stream.handle()) }
            };
            copied = first_failure([copied].into_iter().chain(copies.map(copy)));
            if copied != SUCCESS {
                break;
            }
        }
        // Waited for whatever failed: a copy that goes on must not meet what follows.
        match first_failure([copied, self.to_host.wait(), self.to_card.wait()]) {
            SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    /// Nanoseconds in which a granule comes to the card over the bus of this machine.
    pub(super) fn bus_time(&self, frames: &Frames) -> Option<u64> {
        // The first copies set up what later ones find.
        self.bring(frames)?;
        let start = clock::now();
        self.bring(frames)?;
        let time = clock::now().saturating_sub(start) / u64::try_from(SPARES).ok()?;
        Some(time.max(1))
    }

    /// Copies all spare memory of the host to that of the card.
    fn bring(&self, frames: &Frames) -> Option<()> {
        let copy = |(card, host)| {
            // SAFETY: granules that are mapped; the stream is ours.
            unsafe { real::cuMemcpyDtoDAsync_v2(card, host, frames.granule, self.to_card.handle()) }
        };
        let copied = first_failure((0..SPARES).filter_map(|number| frames.spares(number)).map(copy));
        let waited = self.to_card.wait();
        (first_failure([copied, waited]) == SUCCESS).then_some(())
    }

    /// Ends the use of streams that the driver has destroyed with their context.
    pub(super) fn forget(self) {
        self.to_host.forget();
        self.to_card.forget();
    }
}

fn first_failure(codes: impl IntoIterator<Item = CuResult>) -> CuResult {
    codes.into_iter().find(|code| *code != SUCCESS).unwrap_or(SUCCESS)
}
