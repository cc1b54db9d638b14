//! Interface for opening the connection on which the HTTP client speaks: TCP, TLS or any other byte stream.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// Reading and writing, on any kind of socket, or through a layer above one.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug> Transport for T {}

/// An open connection.
pub type BoxTransport = Box<dyn Transport>;

/// A way to open connections to one server.
pub trait Connector: fmt::Debug + Send + Sync {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<BoxTransport>> + Send + '_>>;
}
