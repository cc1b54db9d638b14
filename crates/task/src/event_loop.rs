//! Runs the daemon's event loop on one thread.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};

/// Work on the thread of the event loop.
///
/// DECISION: boxed, because the code of an `async fn` is otherwise compiled into the crate that awaits it,
/// which is built for size. The linked program is optimised at that crate's level all the same: loops over
/// bytes are not vectorised.
pub type DaemonFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Time in which threads that read files end, when all else has.
const HUNG_DISK: Duration = Duration::from_secs(1);

/// Runs the event loop until `work` is done.
///
/// DECISION: a local runtime instead of a `LocalSet`. In a `LocalSet` every wake-up of a task also writes to
/// the reactor's eventfd, and a small request took 20 µs longer.
pub fn on_one_thread(work: Pin<Box<dyn Future<Output = ()> + '_>>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(work);
    // A file on a hung disk is still being opened, and would keep the process for ever.
    runtime.shutdown_timeout(HUNG_DISK);
    Ok(())
}
