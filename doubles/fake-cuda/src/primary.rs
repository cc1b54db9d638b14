//! Keeps the reference-counted primary context of each card in the fake driver. The CUDA runtime's libraries
//! share it.

use crate::abi::{Context, Out};
use crate::call::driver;
use crate::code::{INVALID_CONTEXT, INVALID_VALUE, Outcome};
use crate::driver::driver;
use crate::work::{Scope, synchronise};

fn retain(context: Out<Context>, device: i32) -> Outcome {
    if context.is_null() {
        return Err(INVALID_VALUE);
    }
    let mut driver = driver()?;
    let card = driver.device(device)?;
    let opened = match driver.contexts.primaries[card].context {
        Some(context) => context,
        None => {
            let flags = driver.contexts.primaries[card].flags;
            driver.open_context(card, flags, true)?
        }
    };
    let primary = &mut driver.contexts.primaries[card];
    primary.context = Some(opened);
    primary.holders += 1;
    context.set(opened)
}

/// Drops one holder, or all of them.
fn release(device: i32, all: bool) -> Outcome {
    let last = {
        let mut driver = driver()?;
        let card = driver.device(device)?;
        let primary = &mut driver.contexts.primaries[card];
        let Some(context) = primary.context else {
            return if all { Ok(()) } else { Err(INVALID_CONTEXT) };
        };
        primary.holders = if all { 0 } else { primary.holders.saturating_sub(1) };
        (primary.holders == 0).then_some((card, context))
    };
    let Some((card, context)) = last else {
        return Ok(());
    };
    synchronise(Scope::Context(context))?;
    let mut driver = driver()?;
    driver.contexts.primaries[card].context = None;
    driver.close_context(context)
}

fn set_flags(device: i32, flags: u32) -> Outcome {
    let mut driver = driver()?;
    let card = driver.device(device)?;
    driver.contexts.primaries[card].flags = flags;
    Ok(())
}

driver! {
    fn cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain" since 7000 (pctx: Out<Context>, dev: i32) {
        retain(pctx, dev)
    }

    fn cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease" since 7000 (dev: i32) {
        release(dev, false)
    }

    fn cuDevicePrimaryCtxRelease_v2 = "cuDevicePrimaryCtxRelease" since 11000 (dev: i32) {
        release(dev, false)
    }

    fn cuDevicePrimaryCtxReset = "cuDevicePrimaryCtxReset" since 7000 (dev: i32) {
        release(dev, true)
    }

    fn cuDevicePrimaryCtxReset_v2 = "cuDevicePrimaryCtxReset" since 11000 (dev: i32) {
        release(dev, true)
    }

    fn cuDevicePrimaryCtxSetFlags = "cuDevicePrimaryCtxSetFlags" since 7000 (dev: i32, flags: u32) {
        set_flags(dev, flags)
    }

    fn cuDevicePrimaryCtxSetFlags_v2 = "cuDevicePrimaryCtxSetFlags" since 11000 (dev: i32, flags: u32) {
        set_flags(dev, flags)
    }

    fn cuDevicePrimaryCtxGetState = "cuDevicePrimaryCtxGetState" since 7000
        (dev: i32, flags: Out<u32>, active: Out<i32>)
    {
        let driver = driver()?;
        let primary = &driver.contexts.primaries[driver.device(dev)?];
        flags.set(primary.flags)?;
        active.set(primary.context.is_some().into())
    }
}
