//! Chooses where an engine listens: a Unix socket in a private folder, or a port on the loopback interface.
//!
//! An engine that supports it gets a socket, to which no other user can connect. Other engines get a port.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use plimsoll_http::{BoxTransport, Connector, HttpClient};
use rustix::fs::{FileType, Mode, OFlags, chmod, fstat, open};
use rustix::net::sockopt;
use tokio::net::{TcpStream, UnixStream};

use plimsoll_process::port_owner::PortOwner;

/// The congestion control towards an engine. BBR, the default of some systems, paces data by its estimate of
/// the line. On the loopback that is only a delay: a request of 2 MB took 0.47 ms instead of 0.31. Reno is in
/// every Linux and open to every user.
const UNPACED: &str = "reno";
/// The longest path of a socket: `sun_path` has 108 bytes, the last of which is zero (unix(7)).
const LONGEST_PATH: usize = 107;

/// Time after which a silent machine counts as gone.
const GONE: Duration = Duration::from_secs(10);

/// The place where an engine listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineAddress {
    /// A port of 127.0.0.1.
    Port(u16),
    /// A Unix socket on which only this user's processes may listen.
    Socket { path: PathBuf, user: u32 },
    /// `ADDRESS:PORT` of another host.
    Remote(String),
}

impl Connector for EngineAddress {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<BoxTransport>> + Send + '_>> {
        Box::pin(self.open(None))
    }
}

impl EngineAddress {
    /// A socket called `engine.sock` in `folder`; `None` where the path would be too long for the kernel.
    pub fn in_folder(folder: &Path, user: u32) -> Option<Self> {
        // llama-server knows a socket by this ending.
        let path = folder.join("engine.sock");
        (path.as_os_str().len() <= LONGEST_PATH).then_some(Self::Socket { path, user })
    }

    /// A client of the engine, which may listen on a Unix socket.
    pub fn client(self) -> HttpClient {
        let client = match &self {
            Self::Port(port) => HttpClient::new(Ipv4Addr::LOCALHOST.to_string(), *port),
            Self::Remote(address) => HttpClient::at(address),
            Self::Socket { .. } => HttpClient::new(Ipv4Addr::LOCALHOST.to_string(), 80),
        };
        client.over(self)
    }

    /// Connects, and refuses a listener of another user than the engine's. A process of `group` may listen on
    /// a port whatever its user.
    pub async fn open(&self, group: Option<u32>) -> io::Result<BoxTransport> {
        match self {
            Self::Port(port) => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).await?;
                // After the connect: the engine may have gone just before, and another user's process taken
                // its port.
                if group.is_some_and(|group| self.stranger(group).is_some()) {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                // Head and body may go out in two writes, of which Nagle's algorithm would delay the second.
                stream.set_nodelay(true)?;
                unpace(&stream);
                Ok(Box::new(stream))
            }
            Self::Remote(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                if stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback()) {
                    unpace(&stream);
                }
                watch_for_silence(&stream);
                Ok(Box::new(stream))
            }
            Self::Socket { path, user } => {
                let stream = UnixStream::connect(path).await?;
                // The engine may put a link to another program's socket there (Docker's, say), and that
                // program would be asked with our rights.
                if stream.peer_cred()?.uid() == *user {
                    Ok(Box::new(stream))
                } else {
                    Err(io::ErrorKind::PermissionDenied.into())
                }
            }
        }
    }

    /// The user whose process listens on the port in the stead of the engine with this process group. A
    /// socket's listener is looked at by each connection.
    pub fn stranger(&self, group: u32) -> Option<u32> {
        match self {
            Self::Port(port) => PortOwner::new(*port, group).stranger(),
            Self::Socket { .. } | Self::Remote(_) => None,
        }
    }

    /// True unless it is a socket that is not there.
    pub(super) fn is_bound(&self) -> bool {
        match self {
            Self::Port(_) | Self::Remote(_) => true,
            Self::Socket { path, .. } => path.symlink_metadata().is_ok(),
        }
    }

    /// Takes a socket away from group and others; its folder keeps them out already.
    pub(super) fn seal(&self) -> io::Result<()> {
        let Self::Socket { path, .. } = self else {
            return Ok(());
        };
        // Never through a link: the engine owns the folder, and root would change another's file.
        let socket = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let number = std::os::fd::AsRawFd::as_raw_fd(&socket);
        Ok(chmod(format!("/proc/self/fd/{number}"), Mode::from_raw_mode(0o600))?)
    }
}

/// Ends the connection when the other machine is gone: an engine may think in silence, and a dead machine
/// sends nothing.
fn watch_for_silence(stream: &TcpStream) {
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, GONE / 2);
    let _ = sockopt::set_tcp_keepintvl(stream, GONE / 5);
    let _ = sockopt::set_tcp_user_timeout(stream, u32::try_from(GONE.as_millis()).unwrap_or(u32::MAX));
}

/// Switches pacing off. A kernel that refuses still delivers the bytes, only later.
fn unpace(stream: &TcpStream) {
    let _ = sockopt::set_tcp_congestion(stream, UNPACED);
}

impl fmt::Display for EngineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "http://{}:{port}", Ipv4Addr::LOCALHOST),
            Self::Socket { path, .. } => write!(f, "unix:{}", path.display()),
            Self::Remote(address) => write!(f, "http://{address}"),
        }
    }
}

/// Returns a port of 127.0.0.1 on which no process listens now, and none of `promised`: ports of engines that
/// may not listen yet.
pub fn free_port(promised: &[u16]) -> io::Result<u16> {
    // Kept until the end, so that the kernel chooses another one.
    let mut refused = Vec::new();
    loop {
        // With port 0 the kernel chooses a free one (ip(7)).
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        if !promised.contains(&port) {
            return Ok(port);
        }
        refused.push(listener);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use rustix::process::getuid;

    use super::*;

    fn socket_in(folder: &Path) -> (EngineAddress, PathBuf) {
        let address = EngineAddress::in_folder(folder, getuid().as_raw()).unwrap();
        (address, folder.join("engine.sock"))
    }

    #[test]
    fn a_free_port_can_be_bound() {
        let port = free_port(&[]).unwrap();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }

    #[test]
    fn a_port_that_another_engine_was_promised_is_not_chosen() {
        // All but a few of the ports that the kernel chooses from.
        let promised: Vec<u16> = (1..=u16::MAX).filter(|port| port % 64 != 1).collect();
        for _ in 0..20 {
            assert_eq!(free_port(&promised).unwrap() % 64, 1);
        }
    }

    #[tokio::test]
    async fn a_connection_to_an_engine_is_never_paced() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        unpace(&stream);
        assert_eq!(sockopt::tcp_congestion(&stream).unwrap(), UNPACED);
    }

    #[test]
    fn a_path_that_the_kernel_cannot_hold_is_no_address() {
        let longest = "x".repeat(LONGEST_PATH - "//engine.sock".len());
        assert!(EngineAddress::in_folder(Path::new(&format!("/{longest}")), 0).is_some());
        assert!(EngineAddress::in_folder(Path::new(&format!("/{longest}x")), 0).is_none());
        let folder = tempfile::tempdir().unwrap();
        let long = folder
            .path()
            .join("x".repeat(LONGEST_PATH - "/engine.sock".len() - 1 - folder.path().as_os_str().len()));
        std::fs::create_dir(&long).unwrap();
        let (_, path) = socket_in(&long);
        assert!(UnixListener::bind(path).is_ok(), "the longest that is taken can be bound");
    }

    #[tokio::test]
    async fn a_listener_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (address, path) = socket_in(folder.path());
        assert!(!address.is_bound() && address.open(None).await.is_err());
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(address.is_bound() && address.open(None).await.is_ok());
        let another = EngineAddress::Socket { path, user: getuid().as_raw() + 1 };
        let refused = another.open(None).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_socket_is_closed_to_others_and_a_link_or_a_file_in_its_place_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (address, path) = socket_in(folder.path());
        let file = folder.path().join("precious");
        std::fs::write(&file, "").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let before = mode(&file);
        std::os::unix::fs::symlink(&file, &path).unwrap();
        assert!(address.seal().is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::hard_link(&file, &path).unwrap();
        assert!(address.seal().is_err());
        assert_eq!(mode(&file), before);
        std::fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        address.seal().unwrap();
        assert_eq!(mode(&path), 0o600);
    }
}
