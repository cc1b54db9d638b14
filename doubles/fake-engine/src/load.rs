//! Simulates the load of a model in the fake engine: its faults, memory, duration, and progress reports to
//! the router.

use tokio::time::sleep;

use super::args::Args;
use super::budget::{Booking, BookingError};
use super::faults::Fault;
use super::{control, death, log};

/// What the report of the failing allocation names when no budget is shared: 5120 MiB.
const OOM_REQUEST_BYTES: u64 = 5120 << 20;
const PROGRESS_STEPS: u32 = 4;

/// Returns when the model is "loaded"; does not return when the script wants the load to fail.
pub(crate) async fn load(args: &Args) -> Booking {
    log(format_args!("srv    load_model: loading model '{}'", args.model));
    progress(args, 0);
    commit_fault(args).await;
    let booking = book(args);
    for step in 1..=PROGRESS_STEPS {
        if !args.script.load.is_zero() {
            sleep(args.script.load / PROGRESS_STEPS).await;
        }
        progress(args, step);
    }
    log(format_args!("srv          main: model loaded"));
    booking
}

fn progress(args: &Args, step: u32) {
    // llama-server reports at most every 200 ms, so an instant load says little.
    let tells = args.has_router && !args.script.early_channel;
    if tells && (step == 0 || step == PROGRESS_STEPS || !args.script.load.is_zero()) {
        control::report_progress(f64::from(step) / f64::from(PROGRESS_STEPS));
    }
}

async fn commit_fault(args: &Args) {
    let Some(fault) = args.script.fail.filter(|fault| fault.is_at_load() && args.script.strikes()) else {
        return;
    };
    sleep(args.script.load).await;
    match fault {
        Fault::CrashAtLoad => death::of_broken_model(&args.model),
        Fault::SignalAtLoad(signal) => death::of_signal(signal),
        Fault::OomAtLoad => death::of_oom_at_load(&args.model, OOM_REQUEST_BYTES),
        _ => std::future::pending().await,
    }
}

fn book(args: &Args) -> Booking {
    match Booking::open(&args.script.budget) {
        Ok(booking) => booking,
        Err(BookingError::Full { wanted_bytes, .. }) => death::of_oom_at_load(&args.model, wanted_bytes),
        Err(error) => {
            log(format_args!("fake-engine: {error}"));
            death::exit(2)
        }
    }
}
