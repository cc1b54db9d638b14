//! Tests of the list of GPUs that the kernel's files give, on written, recorded and damaged copies of such
//! files.

mod damaged;
mod recorded;
mod sums;

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_host::{ProcTree, Unseen};

use super::*;

/// Files in memory, and the answers of render nodes.
#[derive(Clone, Debug, Default)]
struct Written {
    files: BTreeMap<String, Vec<u8>>,
    regions: BTreeMap<u32, Vec<u8>>,
}

impl Written {
    fn with(mut self, files: &[(&str, &str)]) -> Self {
        self.files.extend(files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())));
        self
    }

    /// A card of amdgpu with its figures in bytes: VRAM, GTT, and what is used of both.
    fn amd(self, name: &str, address: &str, pci: &str, pools: [u64; 4]) -> Self {
        let device = format!("sys/class/drm/{name}/device");
        let path = |file: &str| format!("{device}/{file}");
        let [vram, vram_used, gtt, gtt_used] = pools.map(|bytes| bytes.to_string());
        let event = format!("DRIVER=amdgpu\nPCI_ID={pci}\nPCI_SLOT_NAME={address}\n");
        self.with(&[
            (&path("uevent"), &event),
            (&path("mem_info_vram_total"), &vram),
            (&path("mem_info_vram_used"), &vram_used),
            (&path("mem_info_gtt_total"), &gtt),
            (&path("mem_info_gtt_used"), &gtt_used),
        ])
    }

    fn client(self, pid: u32, descriptor: u32, lines: &str) -> Self {
        self.with(&[(&format!("proc/{pid}/fdinfo/{descriptor}"), lines)])
    }

    fn survey(&self) -> KernelSurvey {
        KernelSurvey::of(self)
    }
}

impl ProcTree for Written {
    fn read(&self, path: &str) -> Result<Vec<u8>, Unseen> {
        self.files.get(path).cloned().ok_or(Unseen::Missing)
    }

    fn list(&self, path: &str) -> Vec<String> {
        let inside = format!("{path}/");
        let below = self.files.range(inside.clone()..).map_while(|(file, _)| file.strip_prefix(&*inside));
        let mut names: Vec<String> =
            below.filter_map(|rest| Some(rest.split('/').next()?.to_owned())).collect();
        names.dedup();
        names
    }

    fn page(&self) -> Option<Bytes> {
        None
    }
}

impl CardFiles for Written {
    fn is_live(&self) -> bool {
        false
    }

    fn descriptors(&self, pid: u32) -> Vec<String> {
        self.list(&format!("proc/{pid}/fdinfo"))
    }

    fn memory_regions(&self, minor: u32, _: IntelDriver) -> Option<Vec<u8>> {
        self.regions.get(&minor).cloned()
    }
}
