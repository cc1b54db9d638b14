//! Stream functions of the fake CUDA driver: creation, destruction and queries.

use crate::abi::{Context, Event, Host, Out, Stream};
use crate::call::driver;
use crate::code::{INVALID_HANDLE, INVALID_VALUE, NOT_READY, Outcome};
use crate::driver::driver;
use crate::operation::Operation;
use crate::work::{Scope, StreamState, synchronise};

const NON_BLOCKING: u32 = 1;

fn create(stream: Out<Stream>, flags: u32, priority: i32) -> Outcome {
    if stream.is_null() || flags & !NON_BLOCKING != 0 {
        return Err(INVALID_VALUE);
    }
    let mut driver = driver()?;
    let context = driver.current()?;
    let opened = driver.open_stream(context, flags & NON_BLOCKING == 0);
    if let Some(state) = driver.work.streams.get_mut(&opened) {
        state.priority = priority;
    }
    stream.set(opened)
}

/// Answers a question about a stream.
fn notify<T>(stream: Stream, out: Out<T>, of: impl FnOnce(&StreamState) -> T) -> Outcome {
    let driver = driver()?;
    let stream = driver.stream(stream)?;
    out.set(of(&driver.work.streams[&stream]))
}

driver! {
    fn cuStreamCreate = "cuStreamCreate" since 2000 (phStream: Out<Stream>, Flags: u32) {
        create(phStream, Flags, 0)
    }

    fn cuStreamCreateWithPriority = "cuStreamCreateWithPriority" since 5050
        (phStream: Out<Stream>, flags: u32, priority: i32)
    {
        create(phStream, flags, priority)
    }

    fn cuStreamDestroy = "cuStreamDestroy" since 2000 (hStream: Stream) {
        driver()?.work.streams.remove(&hStream).map(drop).ok_or(INVALID_HANDLE)
    }

    fn cuStreamDestroy_v2 = "cuStreamDestroy" since 4000 (hStream: Stream) {
        driver()?.work.streams.remove(&hStream).map(drop).ok_or(INVALID_HANDLE)
    }

    fn cuStreamQuery / cuStreamQuery_ptsz = "cuStreamQuery" since 2000 (hStream: Stream) {
        let mut driver = driver()?;
        let stream = driver.stream(hStream)?;
        driver.forbid_wait(stream)?;
        let now = driver.work.ask();
        if driver.work.streams[&stream].finish > now { Err(NOT_READY) } else { Ok(()) }
    }

    fn cuStreamSynchronize / cuStreamSynchronize_ptsz = "cuStreamSynchronize" since 2000 (hStream: Stream) {
        let stream = {
            let mut driver = driver()?;
            let stream = driver.stream(hStream)?;
            driver.forbid_wait(stream)?;
            stream
        };
        synchronise(Scope::Stream(stream))
    }

    fn cuStreamWaitEvent / cuStreamWaitEvent_ptsz = "cuStreamWaitEvent" since 3020
        (hStream: Stream, hEvent: Event, Flags: u32)
    {
        let _ = Flags;
        driver()?.wait_event(hStream, hEvent)
    }

    fn cuStreamGetFlags / cuStreamGetFlags_ptsz = "cuStreamGetFlags" since 5050 (hStream: Stream, flags: Out<u32>) {
        notify(hStream, flags, |state| u32::from(!state.blocking))
    }

    fn cuStreamGetPriority / cuStreamGetPriority_ptsz = "cuStreamGetPriority" since 5050
        (hStream: Stream, priority: Out<i32>)
    {
        notify(hStream, priority, |state| state.priority)
    }

    fn cuStreamGetCtx / cuStreamGetCtx_ptsz = "cuStreamGetCtx" since 9020 (hStream: Stream, pctx: Out<Context>) {
        notify(hStream, pctx, |state| state.context)
    }

    fn cuStreamGetId / cuStreamGetId_ptsz = "cuStreamGetId" since 12000 (hStream: Stream, streamId: Out<u64>) {
        let stream = driver()?.stream(hStream)?;
        streamId.set(stream.0)
    }

    fn cuLaunchHostFunc / cuLaunchHostFunc_ptsz = "cuLaunchHostFunc" since 10000
        (hStream: Stream, hostFunction: Host, userData: Host)
    {
        driver()?.submit(hStream, Operation::Nothing)?;
        // SAFETY: the C caller passes a `CUhostFn`, and the data that it takes.
        unsafe { hostFunction.call(userData) };
        Ok(())
    }
}
