//! Creates and removes memory regions in the fake driver: the common part of all calls that allocate and
//! free.

use std::ops::Range;

use crate::abi::{Context, DevicePtr, Physical};
use crate::blocks::{GRANULE, Place, round_up};
use crate::chunks::SMALL;
use crate::code::{Code, INVALID_VALUE, Outcome};
use crate::driver::Driver;
use crate::log::violation;
use crate::space::{Access, Behind, Kind, Region, Segment};

impl Driver {
    /// Device memory of the current context: a part of a chunk, or granules of its own.
    pub(crate) fn allocate(&mut self, length: u64, kind: Kind) -> Result<DevicePtr, Code> {
        if length == 0 {
            return Err(INVALID_VALUE);
        }
        let context = self.current()?;
        let card = self.contexts.open[&context].card;
        if length <= SMALL && kind == Kind::Linear {
            let (at, physical, offset) = self.take_small(context, length)?;
            self.settle(at, length, Kind::Small, card, Some(context), Behind::Block(physical, offset));
            return Ok(DevicePtr(at));
        }
        let physical = self.new_block(Place::Card(card), length, false)?;
        self.place(physical, length, kind, card, Some(context))
    }

    /// Gives a fresh block addresses of its own; the block goes if there are none.
    pub(crate) fn place(
        &mut self,
        physical: Physical,
        length: u64,
        kind: Kind,
        card: usize,
        context: Option<Context>,
    ) -> Result<DevicePtr, Code> {
        let span = round_up(length, GRANULE)?;
        let at = self.space.take(span, GRANULE, 0).inspect_err(|_| {
            let _ = self.release_handle(physical);
        })?;
        self.settle(at, length, kind, card, context, Behind::Block(physical, 0));
        Ok(DevicePtr(at))
    }

    /// Enters a region with one segment.
    pub(crate) fn settle(
        &mut self,
        at: u64,
        length: u64,
        kind: Kind,
        card: usize,
        context: Option<Context>,
        behind: Behind,
    ) {
        let region = Region { length, kind, card, context, id: self.new_handle() };
        let segment = Segment { length, behind, access: Access::EVERY_CARD };
        self.space.regions.insert(at, region);
        self.space.segments.insert(at, segment);
    }

    /// Ends a region of any kind but a reservation.
    pub(crate) fn end_region(&mut self, at: u64) -> Outcome {
        let region = self.space.regions.remove(&at).ok_or(INVALID_VALUE)?;
        let segment = self.space.segments.remove(&at);
        match (region.kind, segment.map(|segment| segment.behind)) {
            (Kind::HostRegistered(_), _) => Ok(()),
            (Kind::Small, _) => {
                self.give_small(at);
                Ok(())
            }
            (_, Some(Behind::Block(physical, _))) => {
                self.space.give(at)?;
                self.release_handle(physical)
            }
            _ => self.space.give(at),
        }
    }

    /// A context goes, and takes with it what it allocated.
    pub(crate) fn free_all_of(&mut self, context: Context) {
        let regions = self.space.regions.iter();
        let own: Vec<u64> =
            regions.filter(|(_, region)| region.context == Some(context)).map(|(&at, _)| at).collect();
        for at in own {
            let _ = self.end_region(at);
        }
    }

    /// Notes memory that goes while work still uses it. For calls that do not wait.
    pub(crate) fn expect_idle(&self, act: &str, range: Range<u64>) {
        if let Some(stream) = self.work.using(&range) {
            violation(
                "in-use",
                format_args!(
                    "{act} of {:#x}..{:#x} while stream {:#x} still uses it",
                    range.start, range.end, stream.0
                ),
            );
        }
    }
}
