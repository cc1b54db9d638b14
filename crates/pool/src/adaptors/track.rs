//! Adaptor that counts an allocator policy's live and peak bytes by tag, such as an operation or a layer.

use alloc::collections::BTreeMap;

use crate::device::{Address, CapturedGraph, OutOfMemory, PoolDevice, Stream};
use crate::policy::{Block, Policy, Trim};

/// Purpose of a block in the caller's numbering: an operation, a layer, a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u32);

/// Live and peak bytes of one tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagUse {
    pub live: u64,
    pub peak: u64,
    pub allocations: u64,
}

/// Policy that counts bytes by tag; a block belongs to the tag that was set when it was handed out.
#[derive(Clone, Debug, Default)]
pub struct Tracked<P> {
    policy: P,
    tag: Tag,
    uses: BTreeMap<Tag, TagUse>,
    blocks: BTreeMap<Address, (Tag, u64)>,
}

impl<P: Policy> Tracked<P> {
    pub fn new(policy: P) -> Self {
        Self {
            policy,
            tag: Tag::default(),
            uses: BTreeMap::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// Counts later allocations for `tag`.
    pub fn set_tag(&mut self, tag: Tag) {
        self.tag = tag;
    }

    pub fn uses(&self) -> &BTreeMap<Tag, TagUse> {
        &self.uses
    }
}

impl<P: Policy> Policy for Tracked<P> {
    fn allocate(
        &mut self,
        device: &mut dyn PoolDevice,
        size: u64,
        stream: Stream,
    ) -> Result<Block, OutOfMemory> {
        let block = self.policy.allocate(device, size, stream)?;
        let used = self.uses.entry(self.tag).or_default();
        used.live += size;
        used.peak = used.peak.max(used.live);
        used.allocations += 1;
        // With the tag of this moment: the caller may have set another one by the time of the free.
        self.blocks.insert(block.address, (self.tag, size));
        Ok(block)
    }

    fn deallocate(&mut self, device: &mut dyn PoolDevice, block: Block, stream: Stream) {
        if let Some((tag, size)) = self.blocks.remove(&block.address) {
            self.uses.entry(tag).or_default().live -= size;
        }
        self.policy.deallocate(device, block, stream);
    }

    fn trim(&mut self, device: &mut dyn PoolDevice, trim: Trim) -> u64 {
        self.policy.trim(device, trim)
    }

    fn capture_begin(&mut self, graph: CapturedGraph) {
        self.policy.capture_begin(graph);
    }

    fn capture_end(&mut self, graph: CapturedGraph) {
        self.policy.capture_end(graph);
    }

    fn graph_destroyed(&mut self, graph: CapturedGraph) {
        self.policy.graph_destroyed(graph);
    }

    fn close(&mut self, device: &mut dyn PoolDevice) {
        self.policy.close(device);
        self.blocks.clear();
        self.uses.clear();
    }

    fn reserved(&self) -> u64 {
        self.policy.reserved()
    }

    fn live(&self) -> u64 {
        self.policy.live()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ours, Simulated};

    #[test]
    fn a_block_is_counted_for_the_tag_that_it_was_taken_under() {
        let mut device = Simulated::new(1 << 30, 1 << 20);
        let mut policy = Tracked::new(Ours::default());
        let (keys, values) = (Tag(1), Tag(2));
        policy.set_tag(keys);
        let first = policy.allocate(&mut device, 100, Stream(0)).unwrap();
        policy.set_tag(values);
        let second = policy.allocate(&mut device, 50, Stream(0)).unwrap();
        policy.deallocate(&mut device, first, Stream(0));
        policy.deallocate(&mut device, first, Stream(0));
        let used = |live, peak| TagUse {
            live,
            peak,
            allocations: 1,
        };
        assert_eq!(policy.uses()[&keys], used(0, 100));
        assert_eq!(policy.uses()[&values], used(50, 50));
        assert_eq!(policy.live(), 50);
        policy.deallocate(&mut device, second, Stream(0));
        policy.close(&mut device);
        assert_eq!(device.reserved(), 0);
    }
}
