//! Walks over the executable and the libraries that are loaded in this process, under the loader's lock.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};

use libc::{Elf64_Phdr, PF_R, PF_W, PROT_READ, PROT_WRITE, dl_phdr_info};

use plimsoll_nostd::elf::ElfImage;

const PT_LOAD: u32 = 1;
const PT_GNU_RELRO: u32 = 0x6474_e552;

/// A loaded object, valid while the loader's lock is held.
pub(super) struct MappedObject<'a> {
    pub(super) bias: usize,
    /// The path it was loaded from; empty for the executable itself.
    pub(super) path: &'a CStr,
    headers: &'a [Elf64_Phdr],
    symbols: Option<ElfImage<'a>>,
}

/// Numbers of objects that were ever loaded and unloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoadCounts {
    pub(super) loaded: u64,
    pub(super) unloaded: u64,
}

/// Runs `act` while no object can be loaded or unloaded. `act` may walk.
pub(super) fn locked<A: FnMut(LoadCounts)>(mut act: A) {
    // No object can be unmapped while a callback of `dl_iterate_phdr` runs. So the search runs inside such a
    // callback, and the memory of the objects stays mapped.
    //
    // DECISION: `dl_iterate_phdr` is used and `dlsym` is not. `dlsym` takes the loader's main lock, which a
    // thread may hold while it waits for the CUDA runtime.
    iterate(&mut |info| {
        act(LoadCounts { loaded: info.dlpi_adds, unloaded: info.dlpi_subs });
        false
    });
}

/// Passes every loaded object to `show`.
pub(super) fn walk(mut show: impl FnMut(MappedObject<'_>)) {
    iterate(&mut |info| {
        show(MappedObject::of(info));
        true
    });
}

fn iterate(show: &mut dyn FnMut(&dl_phdr_info) -> bool) {
    unsafe extern "C" fn step(info: *mut dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: `data` is what `iterate` passed, which waits for us; the loader's `info` lives as long as
        // this call.
        let (show, info) = unsafe { (&mut *data.cast::<&mut dyn FnMut(&dl_phdr_info) -> bool>(), &*info) };
        c_int::from(!show(info))
    }
    let mut show = show;
    let data = (&raw mut show).cast::<c_void>();
    // SAFETY: `step` takes exactly this data, and the loader calls it before it returns only.
    unsafe { libc::dl_iterate_phdr(Some(step), data) };
}

impl<'a> MappedObject<'a> {
    fn of(info: &'a dl_phdr_info) -> Self {
        let path = if info.dlpi_name.is_null() {
            c""
        } else {
            // SAFETY: the loader's name of the object, which lives as long as `info`.
            unsafe { CStr::from_ptr(info.dlpi_name) }
        };
        let headers = if info.dlpi_phdr.is_null() {
            &[]
        } else {
            // SAFETY: the loader vouches for as many headers as it says.
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
        };
        Self {
            bias: wide(info.dlpi_addr),
            path,
            headers,
            // SAFETY: `info` is the loader's, whose lock is held for as long as an Object lives.
            symbols: unsafe { ElfImage::of(info) },
        }
    }

    /// The entry of its dynamic symbol table for a name that it defines.
    pub(super) fn symbol(&self, name: &CStr) -> Option<&libc::Elf64_Sym> {
        self.symbols.as_ref()?.symbol(name)
    }

    /// The program headers as they stand in its file.
    pub(super) fn headers(&self) -> &'a [u8] {
        let size = size_of_val(self.headers);
        // SAFETY: plain numbers without padding, read as bytes.
        unsafe { core::slice::from_raw_parts(self.headers.as_ptr().cast(), size) }
    }

    /// Protection of the page of this address: that of its segment, or read-only where the loader seals it
    /// after relocation (RELRO), which covers whole pages only. `None` if the address is in no segment.
    fn protection(&self, place: usize, page_size: usize) -> Option<c_int> {
        let segment = self.segment(place)?;
        let page = place / page_size * page_size;
        let sealed = self.headers.iter().any(|header| {
            let start = self.start(header);
            let end = start.saturating_add(wide(header.p_memsz)) / page_size * page_size;
            header.p_type == PT_GNU_RELRO && (start / page_size * page_size..end).contains(&page)
        });
        let written = segment.p_flags & PF_W != 0 && !sealed;
        Some(if written { PROT_READ | PROT_WRITE } else { PROT_READ })
    }

    /// The readable segment that holds the word at this address.
    fn segment(&self, at: usize) -> Option<&'a Elf64_Phdr> {
        let end = at.checked_add(size_of::<usize>())?;
        self.headers.iter().find(|header| {
            let start = self.start(header);
            let readable = header.p_type == PT_LOAD && header.p_flags & PF_R != 0;
            readable && start <= at && end <= start.saturating_add(wide(header.p_memsz))
        })
    }

    fn start(&self, header: &Elf64_Phdr) -> usize {
        self.bias.wrapping_add(wide(header.p_vaddr))
    }
}

/// The word at an address of a loaded object; `None` if none of them has it. Needs the loader's lock.
pub(super) fn word(place: usize) -> Option<usize> {
    protection(place)?;
    // SAFETY: a readable segment holds the page, and the callers' addresses are aligned to words.
    Some(unsafe { AtomicUsize::from_ptr(with_exposed_provenance_mut(place)) }.load(Acquire))
}

/// Writes a word of a loaded object, also to a sealed page. False if that fails. Needs the loader's lock.
pub(super) fn write(place: usize, word: usize) -> bool {
    let Some(protection) = protection(place) else {
        return false;
    };
    let page = with_exposed_provenance_mut(place / page_size() * page_size());
    let sealed = protection & PROT_WRITE == 0;
    // SAFETY: a page of a loaded object, which gets back below what it had.
    if sealed && unsafe { libc::mprotect(page, page_size(), PROT_READ | PROT_WRITE) } != 0 {
        return false;
    }
    // SAFETY: mapped, writable now, and aligned; others may read it meanwhile, which is why it is atomic.
    unsafe { AtomicUsize::from_ptr(with_exposed_provenance_mut(place)) }.store(word, Release);
    if sealed {
        // SAFETY: as above. A page that stays writable does no harm.
        unsafe { libc::mprotect(page, page_size(), protection) };
    }
    true
}

fn protection(place: usize) -> Option<c_int> {
    let aligned = place.is_multiple_of(size_of::<usize>());
    let mut found = None;
    iterate(&mut |info| {
        found = MappedObject::of(info).protection(place, page_size());
        found.is_none()
    });
    found.filter(|_| aligned)
}

fn page_size() -> usize {
    // SAFETY: takes a number, returns one.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Addresses are as wide as the machine's words here.
pub(super) fn wide(address: u64) -> usize {
    usize::try_from(address).unwrap_or(usize::MAX)
}

pub(super) fn long(address: usize) -> u64 {
    u64::try_from(address).unwrap_or(u64::MAX)
}
