//! Builders for the rows of the flag table, and helper functions for the setters in these rows.

use super::{Flag, FlagArity, FlagClass, KnownFlag, Setter};
use crate::failure::FlagError;

pub(super) const fn row(names: &'static [&'static str], takes: FlagArity) -> Flag {
    Flag {
        names,
        negations: &[],
        env: None,
        takes,
        // Most flags concern sampling, logging or threads; a row states only what differs.
        effect: FlagClass::None,
        setter: None,
        known: KnownFlag::Today,
    }
}

pub(super) const fn bare(names: &'static [&'static str]) -> Flag {
    row(names, FlagArity::Nothing)
}

pub(super) const fn value(names: &'static [&'static str]) -> Flag {
    row(names, FlagArity::Value)
}

pub(super) const fn number(names: &'static [&'static str]) -> Flag {
    row(names, FlagArity::Number)
}

pub(super) const fn two_values(names: &'static [&'static str]) -> Flag {
    row(names, FlagArity::TwoValues)
}

pub(super) const fn switch(names: &'static [&'static str], negations: &'static [&'static str]) -> Flag {
    let mut flag = row(names, FlagArity::Switch);
    flag.negations = negations;
    flag
}

pub(super) const fn bundle(names: &'static [&'static str]) -> Flag {
    // The spelling selects the bundle, so all bundles share one setter.
    let flag = bare(names).does(FlagClass::Bundle);
    flag.sets(|wish, given| {
        wish.take_bundle(given.flag);
        Ok(())
    })
}

/// A flag that stretches the positions of a model beyond those of its training.
pub(super) const fn stretching(flag: Flag) -> Flag {
    flag.sets(|wish, given| put(&mut wish.stretched, given.text().map(|text| text != "none")))
}

impl Flag {
    pub(super) const fn env(mut self, env: &'static str) -> Self {
        self.env = Some(env);
        self
    }

    pub(super) const fn does(mut self, effect: FlagClass) -> Self {
        self.effect = effect;
        self
    }

    pub(super) const fn sets(mut self, setter: Setter) -> Self {
        self.setter = Some(setter);
        self
    }

    pub(super) const fn removed(mut self, instead: &'static str) -> Self {
        self.known = KnownFlag::Before(instead);
        self
    }

    pub(super) const fn ik(mut self) -> Self {
        self.known = KnownFlag::Ik;
        self
    }

    pub(super) const fn preset_only(mut self) -> Self {
        self.known = KnownFlag::Preset;
        self
    }
}

/// Sets a field; a later flag of the same field wins.
pub(super) fn put<T>(field: &mut T, value: Result<T, FlagError>) -> Result<(), FlagError> {
    *field = value?;
    Ok(())
}

pub(super) fn put_if<T>(given: bool, field: &mut T, value: T) -> Result<(), FlagError> {
    if given {
        *field = value;
    }
    Ok(())
}

/// Sets a field that only grows: `-ncmoe 3 -ncmoe 2` keeps the experts of three layers.
pub(super) fn raise(field: &mut u32, value: Result<u32, FlagError>) -> Result<(), FlagError> {
    *field = value?.max(*field);
    Ok(())
}

/// Appends to a list field, as every `-ot` does.
pub(super) fn add<T>(field: &mut Vec<T>, values: Result<Vec<T>, FlagError>) -> Result<(), FlagError> {
    field.extend(values?);
    Ok(())
}
