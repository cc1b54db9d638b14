//! Asks another host to copy a model's files to itself.
//!
//! A daemon sends it when no host that has the files has room for the model.

use std::rc::Rc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use plimsoll_fleet::RunningCopy;
use tokio::time::timeout;

use super::FleetMember;
use super::give::{named, problem};
use plimsoll_route::{COPY, FileAnswer, HOP, HttpProblem, MODEL, ModelService, no_files};
use plimsoll_task::spawn_local;

/// Time for the answer to an order, and its longest text.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: usize = 64 * 1024;

impl FleetMember {
    /// Takes an order of another host.
    pub(crate) fn copy_files(&self, head: &Parts) -> Result<FileAnswer, HttpProblem> {
        if head.method != Method::POST {
            return Err(problem(
                StatusCode::BAD_REQUEST,
                "bad_request",
                "use POST to request a copy of files",
            ));
        }
        self.begin_copy(&named(head)?).map(|()| FileAnswer::Begun)
    }

    /// Carries an order out that may be for this host or for another one.
    pub(crate) async fn order_copy(self: Rc<Self>, model: String, host: String, address: String) {
        let refused = if self.name.as_bytes() == host.as_bytes() {
            self.begin_copy(&model).err().map(|problem| problem.message)
        } else {
            // A name of a model may be any text; a header carries its bytes.
            let Ok(name) = HeaderValue::from_bytes(model.as_bytes()) else { return };
            let lines = vec![(HOP, HeaderValue::from_static(COPY)), (MODEL, name)];
            let peer = self.peer(&host, &address).with_lines(lines);
            match timeout(PATIENCE, peer.ask(Method::POST, "/", None, LONGEST)).await {
                Ok(Some((StatusCode::ACCEPTED, _))) => None,
                Ok(Some((status, _))) => Some(format!("status {status}")),
                Ok(None) | Err(_) => Some("it does not answer".to_owned()),
            }
        };
        match refused {
            None => tracing::info!("fleet: host '{host}' is to copy the files of model '{model}'"),
            Some(why) => tracing::debug!("fleet: host '{host}' copies no files of model '{model}': {why}"),
        }
    }

    /// Begins to copy the files of a model that this host lacks, if it copies no others.
    fn begin_copy(&self, model: &str) -> Result<(), HttpProblem> {
        let files = self.files.as_ref().ok_or_else(no_files)?;
        let runtime = self.runtime().ok_or_else(no_files)?;
        let model = runtime.resolve(model).map(|id| runtime.state.entry(id).name.clone());
        let Some(model) = model.filter(|model| files.may_copy(model)) else {
            return Err(problem(StatusCode::CONFLICT, "no_copy", "this host has all files of the model"));
        };
        if files.copying.borrow().is_some() {
            let text = "this host is already copying other files";
            return Err(problem(StatusCode::SERVICE_UNAVAILABLE, "copy_in_progress", text));
        }
        let me = self.me().ok_or_else(no_files)?;
        let running = RunningCopy { model: model.clone(), from: String::new(), percent: 0 };
        files.copying.replace(Some(running));
        spawn_local(me.copy(model));
        Ok(())
    }
}
