//! Passes the bytes of a websocket unchanged between client and engine.
//!
//! It ends with either side, with the server, when its client's key loses the right to it, and when the key
//! has used up its tokens. Messages are not read: a websocket is one request, and four of its bytes count as
//! a token.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};

use super::access_key::KeyUse;
use super::standing_access::StandingAccess;
use super::wire_state::LimitedStream;

/// The most that one read takes.
const PIECE: usize = 16 * 1024;

/// Upgraded connection to an engine. The model is busy until the tunnel is dropped.
pub(crate) struct Tunnel {
    engine: LimitedStream,
    /// Bytes that the engine sent behind its answer.
    early: Bytes,
    /// The use of the client's key.
    key_use: RefCell<Option<Box<KeyUse>>>,
    /// `None` for a request of another host of the fleet, which looks after its client itself.
    access: Option<Box<StandingAccess>>,
    finish: Cell<Option<Box<dyn FnOnce()>>>,
}

impl Tunnel {
    /// `finish` ends the request when the tunnel is dropped.
    pub(super) fn new(
        engine: LimitedStream,
        early: Bytes,
        (key_use, access): (Option<Box<KeyUse>>, Option<Box<StandingAccess>>),
        finish: impl FnOnce() + 'static,
    ) -> Self {
        Self {
            engine,
            early,
            key_use: RefCell::new(key_use),
            access,
            finish: Cell::new(Some(Box::new(finish))),
        }
    }

    /// Passes bytes on until one side has closed or the client has lost its access; `early` is what the
    /// client sent behind its request.
    pub(crate) async fn join(
        mut self,
        mut client: impl AsyncRead + AsyncWrite + Unpin,
        early: Bytes,
    ) -> io::Result<()> {
        let access = self.access.take();
        let key_use = &self.key_use;
        let may_go_on =
            |bytes: usize| key_use.borrow_mut().as_mut().is_none_or(|key_use| key_use.flows(bytes));
        self.engine.write_all(&early).await?;
        client.write_all(&self.early).await?;
        let (mut from_client, mut to_client) = split(client);
        let (mut from_engine, mut to_engine) = split(&mut self.engine);
        if may_go_on(early.len() + self.early.len()) {
            let lost = async {
                match access {
                    Some(access) => access.ended().await,
                    None => std::future::pending().await,
                }
            };
            // A side that has closed takes no answer: websockets say goodbye in a frame.
            tokio::select! {
                copied = pass(&mut from_client, &mut to_engine, &may_go_on) => copied,
                copied = pass(&mut from_engine, &mut to_client, &may_go_on) => copied,
                () = lost => Ok(()),
            }?;
        }
        to_client.shutdown().await
    }
}

/// Passes bytes on until there are no more, or until `may_go_on` says no.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    may_go_on: &impl Fn(usize) -> bool,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return Ok(());
        }
        to.write_all(&piece[..length]).await?;
        to.flush().await?;
        if !may_go_on(length) {
            return Ok(());
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // The key's use ends with the request.
        drop(self.key_use.take());
        if let Some(finish) = self.finish.take() {
            finish();
        }
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}
