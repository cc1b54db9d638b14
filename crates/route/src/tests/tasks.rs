//! Tests of tasks on one thread and of blocking work on others.

use plimsoll_task::{on_one_thread, spawn_blocking, spawn_local};
use tokio::sync::oneshot;

#[test]
fn a_task_and_blocking_work_answer_and_a_panic_of_either_is_an_error() {
    let work = async {
        assert_eq!(spawn_local(async { 7 }).await.unwrap(), 7);
        assert_eq!(spawn_blocking(|| "read").await.unwrap(), "read");
        let panics = spawn_blocking(|| -> u32 { panic!("a bug in the work") });
        assert!(panics.await.is_err());
        let panics = spawn_local(async { panic!("a bug in the task") });
        assert!(panics.await.unwrap_err().is_panic());
        assert_eq!(spawn_blocking(|| 8).await.unwrap(), 8);
    };
    on_one_thread(Box::pin(work)).unwrap();
}

#[test]
fn work_whose_answer_is_not_awaited_is_done_all_the_same() {
    let work = async {
        let (done, heard) = oneshot::channel();
        drop(spawn_blocking(move || done.send(()).is_ok()));
        heard.await.unwrap();
    };
    on_one_thread(Box::pin(work)).unwrap();
}
