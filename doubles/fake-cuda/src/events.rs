//! Simulates CUDA events, which mark points in a stream's work.

use std::collections::BTreeMap;

use crate::abi::{Event, Graph, Out, Stream};
use crate::call::driver;
use crate::capture::forbid_in_capture;
use crate::code::{
    CAPTURED_EVENT, Code, INVALID_HANDLE, INVALID_VALUE, NOT_READY, Outcome, STREAM_CAPTURE_MERGE,
};
use crate::driver::{Driver, driver};
use crate::operation::Operation;
use crate::work::{Scope, synchronise};

pub(crate) type Events = BTreeMap<Event, State>;

/// Without timing, `cuEventElapsedTime` refuses the event.
const DISABLE_TIMING: u32 = 2;

#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    flags: u32,
    /// When the work before it is done; none before it is recorded.
    finish: Option<u64>,
    /// The graph whose capture recorded it.
    captured: Option<Graph>,
}

impl Driver {
    fn event(&self, event: Event) -> Result<State, Code> {
        self.events.get(&event).copied().ok_or(INVALID_HANDLE)
    }

    fn record(&mut self, event: Event, handle: Stream) -> Outcome {
        let stream = self.stream(handle)?;
        let mut state = self.event(event)?;
        let captured = self.work.streams[&stream].capture;
        self.submit(handle, Operation::Nothing)?;
        state.captured = captured;
        state.finish = captured.is_none().then(|| self.work.streams[&stream].finish);
        self.events.insert(event, state);
        Ok(())
    }

    pub(crate) fn wait_event(&mut self, handle: Stream, event: Event) -> Outcome {
        let stream = self.stream(handle)?;
        let state = self.event(event)?;
        let own = self.work.streams[&stream].capture;
        match (state.captured.filter(|graph| self.captures.contains_key(graph)), own) {
            (Some(graph), None) => self.join_capture(stream, graph),
            (Some(graph), Some(own)) if graph != own => return Err(STREAM_CAPTURE_MERGE),
            (Some(_), Some(_)) => {}
            (None, _) => {
                self.work.wait_until(stream, state.finish.unwrap_or(0));
            }
        }
        Ok(())
    }

    /// When an event's work is done, for those who ask or wait.
    fn completion(&self, event: Event) -> Result<u64, Code> {
        let state = self.event(event)?;
        match state.captured {
            Some(_) => Err(CAPTURED_EVENT),
            None => Ok(state.finish.unwrap_or(0)),
        }
    }
}

fn elapsed(milliseconds: Out<f32>, start: Event, end: Event) -> Outcome {
    let mut driver = driver()?;
    let now = driver.work.ask();
    let timed = |event| match driver.event(event)? {
        state if state.flags & DISABLE_TIMING != 0 => Err(INVALID_HANDLE),
        State { finish: None, .. } => Err(INVALID_HANDLE),
        State { finish: Some(finish), .. } if finish > now => Err(NOT_READY),
        State { finish: Some(finish), .. } => Ok(finish),
    };
    let microseconds = timed(end)?.saturating_sub(timed(start)?);
    let short = u16::try_from(microseconds).unwrap_or(u16::MAX);
    milliseconds.set(f32::from(short) / 1000.0)
}

fn destroy(event: Event) -> Outcome {
    driver()?.events.remove(&event).map(drop).ok_or(INVALID_HANDLE)
}

driver! {
    fn cuEventCreate = "cuEventCreate" since 2000 (phEvent: Out<Event>, Flags: u32) {
        if phEvent.is_null() {
            return Err(INVALID_VALUE);
        }
        let mut driver = driver()?;
        driver.current()?;
        let event = Event(driver.new_handle());
        driver.events.insert(event, State { flags: Flags, finish: None, captured: None });
        phEvent.set(event)
    }

    fn cuEventRecord / cuEventRecord_ptsz = "cuEventRecord" since 2000 (hEvent: Event, hStream: Stream) {
        driver()?.record(hEvent, hStream)
    }

    fn cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz = "cuEventRecordWithFlags" since 11010
        (hEvent: Event, hStream: Stream, flags: u32)
    {
        let _ = flags;
        driver()?.record(hEvent, hStream)
    }

    fn cuEventQuery = "cuEventQuery" since 2000 (hEvent: Event) {
        let mut driver = driver()?;
        driver.forbid_unsafe()?;
        let finish = driver.completion(hEvent)?;
        if finish > driver.work.ask() { Err(NOT_READY) } else { Ok(()) }
    }

    fn cuEventSynchronize = "cuEventSynchronize" since 2000 (hEvent: Event) {
        forbid_in_capture()?;
        let finish = driver()?.completion(hEvent)?;
        synchronise(Scope::Time(finish))
    }

    fn cuEventDestroy = "cuEventDestroy" since 2000 (hEvent: Event) {
        destroy(hEvent)
    }

    fn cuEventDestroy_v2 = "cuEventDestroy" since 4000 (hEvent: Event) {
        destroy(hEvent)
    }

    fn cuEventElapsedTime = "cuEventElapsedTime" since 2000
        (pMilliseconds: Out<f32>, hStart: Event, hEnd: Event)
    {
        elapsed(pMilliseconds, hStart, hEnd)
    }

    fn cuEventElapsedTime_v2 = "cuEventElapsedTime" since 12080
        (pMilliseconds: Out<f32>, hStart: Event, hEnd: Event)
    {
        elapsed(pMilliseconds, hStart, hEnd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{alone, broken, get, ok, start};
    use crate::fill::cuMemsetD8Async;
    use crate::linear::cuMemAlloc_v2;
    use crate::streams::{cuStreamCreate, cuStreamQuery, cuStreamWaitEvent};

    const MIB: u64 = 1 << 20;

    #[test]
    fn work_is_done_after_as_many_questions_as_it_takes() {
        alone("delay=2 clock=queries", || {
            start();
            let stream = get(|stream| cuStreamCreate(stream, 1));
            let event = get(|event| cuEventCreate(event, 0));
            let at = get(|at| cuMemAlloc_v2(at, MIB));
            ok(cuEventQuery(event));
            ok(cuMemsetD8Async(at, 1, MIB, stream));
            ok(cuEventRecord(event, stream));
            assert_eq!(cuEventQuery(event), NOT_READY);
            ok(cuEventQuery(event));
            ok(cuMemsetD8Async(at, 1, MIB, stream));
            assert_eq!(cuStreamQuery(stream), NOT_READY);
            ok(cuEventRecord(event, stream));
            ok(cuEventSynchronize(event));
            ok(cuStreamQuery(stream));
        });
    }

    #[test]
    fn work_takes_its_time() {
        alone("delay=20000", || {
            start();
            let stream = get(|stream| cuStreamCreate(stream, 1));
            let (before, after) =
                (get(|event| cuEventCreate(event, 0)), get(|event| cuEventCreate(event, 0)));
            let at = get(|at| cuMemAlloc_v2(at, MIB));
            ok(cuEventRecord(before, stream));
            ok(cuMemsetD8Async(at, 1, MIB, stream));
            ok(cuEventRecord(after, stream));
            assert_eq!(cuStreamQuery(stream), NOT_READY);
            ok(cuEventSynchronize(after));
            ok(cuStreamQuery(stream));
            assert!(get(|time| cuEventElapsedTime(time, before, after)) >= 20.0);
        });
    }

    #[test]
    fn streams_that_do_not_wait_for_each_other_race() {
        let log = alone("delay=5 clock=queries", || {
            start();
            let [first, second] = [(); 2].map(|()| get(|stream| cuStreamCreate(stream, 1)));
            let event = get(|event| cuEventCreate(event, 0));
            let at = get(|at| cuMemAlloc_v2(at, MIB));
            ok(cuMemsetD8Async(at, 1, MIB, first));
            ok(cuEventRecord(event, first));
            ok(cuStreamWaitEvent(second, event, 0));
            ok(cuMemsetD8Async(at, 1, MIB, second));
            ok(cuMemsetD8Async(at, 1, MIB, first));
        });
        assert_eq!(
            broken(&log),
            ["race"],
            "the second waited for the first, but not the first for the second"
        );
    }
}
