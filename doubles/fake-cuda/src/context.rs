//! CUDA contexts in the fake driver: each takes `context=` bytes of its card and owns the memory that was
//! allocated while it was current.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;

use crate::abi::structs::ContextParams;
use crate::abi::{Context, Host, In, Out, Stream};
use crate::call::driver;
use crate::code::{CONTEXT_IS_DESTROYED, Code, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::driver::{Driver, driver};
use crate::settings::settings;
use crate::work::{Scope, synchronise};

#[derive(Debug)]
pub(crate) struct Contexts {
    pub(crate) open: BTreeMap<Context, Opened>,
    pub(crate) primaries: Vec<Primary>,
}

#[derive(Debug)]
pub(crate) struct Opened {
    /// The position of its card.
    pub(crate) card: usize,
    pub(crate) flags: u32,
    pub(crate) primary: bool,
    /// The streams that the handles 1 and 2 mean in this context.
    pub(crate) legacy: Stream,
    pub(crate) per_thread: Stream,
}

#[derive(Debug, Default)]
pub(crate) struct Primary {
    pub(crate) context: Option<Context>,
    pub(crate) holders: u32,
    pub(crate) flags: u32,
}

thread_local! {
    /// The thread's contexts. Never dropped: libraries call the driver while the process exits, after the
    /// destructors of the thread.
    static STACK: ManuallyDrop<RefCell<Vec<Context>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

fn with_stack<T>(act: impl FnOnce(&mut Vec<Context>) -> T) -> T {
    STACK.with(|stack| act(&mut stack.borrow_mut()))
}

/// The context on top of the thread's stack, whether it lives or not.
fn top() -> Option<Context> {
    with_stack(|stack| stack.last().copied())
}

impl Contexts {
    pub(crate) fn new(cards: usize) -> Self {
        Self { open: BTreeMap::new(), primaries: (0..cards).map(|_| Primary::default()).collect() }
    }
}

impl Driver {
    /// The thread's context.
    pub(crate) fn current(&self) -> Result<Context, Code> {
        let top = top().ok_or(INVALID_CONTEXT)?;
        if self.contexts.open.contains_key(&top) { Ok(top) } else { Err(CONTEXT_IS_DESTROYED) }
    }

    /// The card of the thread's context.
    pub(crate) fn current_card(&self) -> Result<usize, Code> {
        Ok(self.contexts.open[&self.current()?].card)
    }

    pub(crate) fn open_context(&mut self, card: usize, flags: u32, primary: bool) -> Result<Context, Code> {
        self.charge(card, settings().context)?;
        let context = Context(self.new_handle());
        let opened = Opened {
            card,
            flags,
            primary,
            legacy: self.open_stream(context, true),
            per_thread: self.open_stream(context, true),
        };
        self.contexts.open.insert(context, opened);
        Ok(context)
    }

    pub(crate) fn close_context(&mut self, context: Context) -> Outcome {
        let opened = self.contexts.open.remove(&context).ok_or(INVALID_CONTEXT)?;
        self.free_all_of(context);
        self.close_streams_of(context);
        self.discharge(opened.card, settings().context);
        Ok(())
    }

    fn known(&self, context: Context) -> Outcome {
        if self.contexts.open.contains_key(&context) { Ok(()) } else { Err(INVALID_CONTEXT) }
    }
}

fn create(context: Out<Context>, flags: u32, device: i32) -> Outcome {
    if context.is_null() {
        return Err(INVALID_VALUE);
    }
    let mut driver = driver()?;
    let card = driver.device(device)?;
    let opened = driver.open_context(card, flags, false)?;
    with_stack(|stack| stack.push(opened));
    context.set(opened)
}

fn destroy(context: Context) -> Outcome {
    let opened_as_primary = driver()?.contexts.open.get(&context).map(|opened| opened.primary);
    if opened_as_primary.ok_or(INVALID_CONTEXT)? {
        return Err(INVALID_CONTEXT);
    }
    synchronise(Scope::Context(context))?;
    driver()?.close_context(context)?;
    with_stack(|stack| stack.pop_if(|top| *top == context));
    Ok(())
}

driver! {
    fn cuCtxCreate = "cuCtxCreate" since 2000 (pctx: Out<Context>, flags: u32, dev: i32) {
        create(pctx, flags, dev)
    }

    fn cuCtxCreate_v2 = "cuCtxCreate" since 3020 (pctx: Out<Context>, flags: u32, dev: i32) {
        create(pctx, flags, dev)
    }

    fn cuCtxCreate_v3 = "cuCtxCreate" since 11040
        (pctx: Out<Context>, paramsArray: Host, numParams: i32, flags: u32, dev: i32)
    {
        let _ = (paramsArray, numParams);
        create(pctx, flags, dev)
    }

    fn cuCtxCreate_v4 = "cuCtxCreate" since 12050
        (pctx: Out<Context>, ctxCreateParams: In<ContextParams>, flags: u32, dev: i32)
    {
        let _ = ctxCreateParams;
        create(pctx, flags, dev)
    }

    fn cuCtxDestroy = "cuCtxDestroy" since 2000 (ctx: Context) {
        destroy(ctx)
    }

    fn cuCtxDestroy_v2 = "cuCtxDestroy" since 4000 (ctx: Context) {
        destroy(ctx)
    }

    fn cuCtxPushCurrent_v2 = "cuCtxPushCurrent" since 4000 (ctx: Context) {
        driver()?.known(ctx)?;
        with_stack(|stack| stack.push(ctx));
        Ok(())
    }

    fn cuCtxPopCurrent_v2 = "cuCtxPopCurrent" since 4000 (pctx: Out<Context>) {
        let _initialised = driver()?;
        let popped = with_stack(Vec::pop).ok_or(INVALID_CONTEXT)?;
        pctx.set_if_wanted(popped);
        Ok(())
    }

    fn cuCtxSetCurrent = "cuCtxSetCurrent" since 4000 (ctx: Context) {
        let driver = driver()?;
        let wanted = (ctx != Context(0)).then_some(ctx);
        wanted.map_or(Ok(()), |context| driver.known(context))?;
        with_stack(|stack| {
            stack.pop();
            stack.extend(wanted);
        });
        Ok(())
    }

    fn cuCtxGetCurrent = "cuCtxGetCurrent" since 4000 (pctx: Out<Context>) {
        let _initialised = driver()?;
        pctx.set(top().unwrap_or(Context(0)))
    }

    fn cuCtxGetDevice = "cuCtxGetDevice" since 2000 (device: Out<i32>) {
        device.set(i32::try_from(driver()?.current_card()?).unwrap_or(0))
    }

    fn cuCtxGetFlags = "cuCtxGetFlags" since 7000 (flags: Out<u32>) {
        let driver = driver()?;
        flags.set(driver.contexts.open[&driver.current()?].flags)
    }

    fn cuCtxGetId = "cuCtxGetId" since 12000 (ctx: Context, ctxId: Out<u64>) {
        let driver = driver()?;
        let context = if ctx == Context(0) { driver.current()? } else { ctx };
        driver.known(context)?;
        ctxId.set(context.0)
    }

    fn cuCtxGetApiVersion = "cuCtxGetApiVersion" since 3020 (ctx: Context, version: Out<u32>) {
        let _ = ctx;
        version.set(3020)
    }

    fn cuCtxSynchronize = "cuCtxSynchronize" since 2000 () {
        let context = {
            let mut driver = driver()?;
            let context = driver.current()?;
            driver.forbid_wait_for(context)?;
            context
        };
        synchronise(Scope::Context(context))
    }

    fn cuCtxSetLimit = "cuCtxSetLimit" since 3010 (limit: i32, value: usize) {
        let _ = (limit, value);
        driver()?.current().map(drop)
    }

    fn cuCtxGetLimit = "cuCtxGetLimit" since 3010 (pvalue: Out<usize>, limit: i32) {
        let _ = limit;
        driver()?.current()?;
        pvalue.set(1024)
    }

    fn cuCtxGetStreamPriorityRange = "cuCtxGetStreamPriorityRange" since 5050
        (leastPriority: Out<i32>, greatestPriority: Out<i32>)
    {
        driver()?.current()?;
        leastPriority.set_if_wanted(0);
        greatestPriority.set_if_wanted(-5);
        Ok(())
    }

    fn cuCtxEnablePeerAccess = "cuCtxEnablePeerAccess" since 4000 (peerContext: Context, Flags: u32) {
        let driver = driver()?;
        driver.known(peerContext)?;
        if driver.current()? == peerContext || Flags != 0 { Err(INVALID_VALUE) } else { Ok(()) }
    }

    fn cuCtxDisablePeerAccess = "cuCtxDisablePeerAccess" since 4000 (peerContext: Context) {
        driver()?.known(peerContext)
    }

    fn cuCtxSetSharedMemConfig = "cuCtxSetSharedMemConfig" since 4020 (config: i32) {
        let _ = config;
        Err(NOT_SUPPORTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{alone, code, get, ok, start};
    use crate::code::OUT_OF_MEMORY;
    use crate::device::cuInit;
    use crate::linear::cuMemAlloc_v2;
    use crate::primary::{cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain};

    const MIB: u64 = 1 << 20;

    fn free_mib() -> u64 {
        driver().unwrap().memory_of(0).0 / MIB
    }

    #[test]
    fn a_context_costs_bytes_and_takes_its_memory_with_it() {
        alone("total=100M context=30M", || {
            ok(cuInit(0));
            let own = get(|context| cuCtxCreate_v2(context, 0, 0));
            get(|at| cuMemAlloc_v2(at, 10 * MIB));
            get(|at| cuMemAlloc_v2(at, 10));
            assert_eq!(free_mib(), 58);
            get(|context| cuDevicePrimaryCtxRetain(context, 0));
            assert_eq!(code(|context| cuCtxCreate_v2(context, 0, 0)), OUT_OF_MEMORY);
            ok(cuCtxDestroy_v2(own));
            assert_eq!(free_mib(), 70);
            assert_eq!(code(|at| cuMemAlloc_v2(at, MIB)), INVALID_CONTEXT);
        });
    }

    #[test]
    fn the_primary_context_lives_until_its_last_holder_goes() {
        alone("total=100M context=30M", || {
            let context = start();
            assert_eq!(get(|again| cuDevicePrimaryCtxRetain(again, 0)), context);
            ok(cuDevicePrimaryCtxRelease_v2(0));
            assert_eq!(free_mib(), 70);
            ok(cuDevicePrimaryCtxRelease_v2(0));
            assert_eq!(free_mib(), 100);
            assert_eq!(cuDevicePrimaryCtxRelease_v2(0), INVALID_CONTEXT);
            assert_eq!(code(|at| cuMemAlloc_v2(at, MIB)), CONTEXT_IS_DESTROYED);
        });
    }

    #[test]
    fn contexts_stack_up_per_thread() {
        alone("cards=2", || {
            let first = start();
            let second = get(|context| cuDevicePrimaryCtxRetain(context, 1));
            ok(cuCtxPushCurrent_v2(second));
            assert_eq!(get(|device| cuCtxGetDevice(device)), 1);
            let elsewhere = std::thread::spawn(|| code(|device| cuCtxGetDevice(device)));
            assert_eq!(elsewhere.join().unwrap(), INVALID_CONTEXT);
            assert_eq!(get(|context| cuCtxPopCurrent_v2(context)), second);
            assert_eq!(get(|context| cuCtxGetCurrent(context)), first);
        });
    }
}
