//! Finds the virtual table of a C++ class by the type information that Microsoft's compiler writes.
//!
//! The name of the class stands in a type descriptor, a locator points at the descriptor, and the word
//! before the table points at the locator (`_TypeDescriptor`, `_RTTICompleteObjectLocator` of `rttidata.h`
//! in Visual C++ 14).

use crate::{Image, number32, number64, wide};

/// A table of virtual methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualTable {
    /// Address of the first slot.
    pub address: u32,
    /// Addresses of the methods.
    pub methods: Vec<u32>,
}

/// Error: a class was found, but not its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    #[error("no type information points at the name of the class")]
    Locator,
    #[error("no table of methods belongs to the class")]
    Table,
}

/// Bytes before the name in a type descriptor.
const NAME: u32 = 16;
/// First word of a locator with addresses that are relative to the image.
const LOCATOR: u32 = 1;
/// Bytes of a locator.
const LOCATOR_SIZE: usize = 24;
/// Slots that are read at most.
const MOST: usize = 64;

impl Image<'_> {
    /// The table of the class with this decorated name (`.?AUname@@` for a struct); `None` if the image has
    /// no such class.
    pub fn virtual_table(&self, name: &str) -> Option<Result<VirtualTable, ClassError>> {
        let descriptor = self.descriptor(name)?;
        Some(self.table_of(descriptor))
    }

    fn descriptor(&self, name: &str) -> Option<u32> {
        let (address, data) = self.section(".data")?;
        let wanted: Vec<u8> = [name.as_bytes(), &[0]].concat();
        // Descriptors are aligned, and so are the names behind two pointers.
        let place = (0..data.len()).step_by(8).find(|at| data[*at..].starts_with(&wanted))?;
        address.checked_add(u32::try_from(place).ok()?)?.checked_sub(NAME)
    }

    fn table_of(&self, descriptor: u32) -> Result<VirtualTable, ClassError> {
        let (address, constants) = self.section(".rdata").ok_or(ClassError::Locator)?;
        let at = |place: usize| address.checked_add(u32::try_from(place).ok()?);
        let is_locator = |place: &usize| {
            let field = |offset: usize| number32(constants, place + offset);
            // The second field is 0 in the locator of the object's own begin.
            field(12) == Some(descriptor)
                && field(0) == Some(LOCATOR)
                && field(4) == Some(0)
                && field(20) == at(*place)
        };
        let end = constants.len().saturating_sub(LOCATOR_SIZE);
        let locator = (0..end).step_by(4).find(is_locator).and_then(at).ok_or(ClassError::Locator)?;
        let pointer = self.base.checked_add(locator.into()).ok_or(ClassError::Locator)?;
        let is_before = |place: &usize| number64(constants, *place) == Some(pointer);
        let before = (0..end).step_by(8).find(is_before).ok_or(ClassError::Table)?;
        let first = before + size_of::<u64>();
        let slots = (0..MOST).map_while(|slot| self.method(number64(constants, first + slot * 8)?));
        match (at(first), slots.collect::<Vec<u32>>()) {
            (Some(address), methods) if !methods.is_empty() => Ok(VirtualTable { address, methods }),
            _ => Err(ClassError::Table),
        }
    }

    /// The method that a slot points at; `None` for anything else.
    fn method(&self, pointer: u64) -> Option<u32> {
        let (code, bytes) = self.section(".text")?;
        let method = self.relative(pointer)?;
        method.checked_sub(code).filter(|offset| wide(*offset) < bytes.len()).map(|_| method)
    }
}
