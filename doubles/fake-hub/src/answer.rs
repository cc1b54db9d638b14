//! HTTP responses of the fake hub: references, file trees, redirects and byte ranges.

use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::{COMMIT, Fault, HostedFile, Request, Shared};

/// What lets a page of another place read the answers, as the hub's own do.
const CORS: &str =
    "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: ETag,Link,Content-Range\r\n";

/// Answers one request; false where the connection ends with it.
pub(super) fn answer(
    stream: &mut TcpStream,
    request: &Request,
    shared: &Shared,
    number: usize,
) -> io::Result<bool> {
    let path = request.path.split('?').next().unwrap_or_default().trim_start_matches('/');
    if let Some(rest) = path.strip_prefix("api/models/") {
        return list(stream, rest, request, shared);
    }
    let Some((repo, file)) = path.split_once(&format!("/resolve/{COMMIT}/")) else {
        return status(stream, 404, "");
    };
    let file = file.replace("%20", " ");
    let Some(file) = shared.repositories.get(repo).and_then(|files| files.get(&file)) else {
        return status(stream, 404, "");
    };
    if let Some(open) = refused(stream, request, file.fault)? {
        return Ok(open);
    }
    if !request.elsewhere {
        // As the hub does: the digest on the redirect, the bytes at another host.
        let to = match file.fault {
            Fault::Loop => request.path.clone(),
            Fault::BadRedirect => "ftp://127.0.0.1/x".to_owned(),
            _ => format!("{}{}", shared.elsewhere, request.path),
        };
        let headers = format!("Location: {to}\r\nX-Linked-ETag: \"{}\"\r\n", file.stated());
        return status(stream, 302, &headers);
    }
    send(stream, request, file, number)
}

/// Faults that a list and a file have alike.
fn refused(stream: &mut TcpStream, request: &Request, fault: Fault) -> io::Result<Option<bool>> {
    match fault {
        Fault::Status(429) => status(stream, 429, "Retry-After: 17\r\n").map(Some),
        Fault::Status(code) => status(stream, code, "").map(Some),
        Fault::Gated if !request.elsewhere && request.authorization.is_none() => {
            status(stream, 401, "").map(Some)
        }
        Fault::Hangs => Ok(Some(false)),
        Fault::Noise => stream.write_all(b"\x16\x03\x01 this is no HTTP\r\n\r\n").map(|()| Some(false)),
        _ => Ok(None),
    }
}

fn list(stream: &mut TcpStream, path: &str, request: &Request, shared: &Shared) -> io::Result<bool> {
    if let Some(open) = refused(stream, request, shared.lists)? {
        return Ok(open);
    }
    let of = |repo: &str| shared.repositories.get(repo);
    let body = if let Some(files) = path.strip_suffix("/refs").and_then(of) {
        let gated = files.values().any(|file| file.fault == Fault::Gated);
        if gated && request.authorization.is_none() {
            return status(stream, 401, "");
        }
        json!({ "branches": [{ "name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT }] })
    } else if let Some(files) = path.strip_suffix(&format!("/tree/{COMMIT}")).and_then(of) {
        files.iter().map(|(path, file)| item(path, file)).collect()
    } else {
        return status(stream, 404, "");
    };
    let body = body.to_string();
    match shared.lists {
        Fault::Truncates => {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}",
                body.len(),
                &body[..body.len() / 2]
            )?;
            Ok(false)
        }
        Fault::TooMuch => {
            // A list without an end: the client has to stop.
            write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[")?;
            loop {
                stream.write_all(&[b' '; 1 << 16])?;
            }
        }
        Fault::OtherRange => whole(stream, "{\"branches\": 5}"),
        _ => whole(stream, &body),
    }
}

fn item(path: &str, file: &HostedFile) -> serde_json::Value {
    json!({
        "type": "file", "path": path, "oid": COMMIT, "size": file.length,
        "lfs": { "oid": file.stated(), "size": file.length, "pointerSize": 135 },
    })
}

fn send(stream: &mut TcpStream, request: &Request, file: &HostedFile, number: usize) -> io::Result<bool> {
    let (from, to) = request.range.unwrap_or((0, u64::MAX));
    if file.fault == Fault::IgnoresRanges {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.length)?;
        pour(stream, file, 0, file.length, Duration::ZERO)?;
        return Ok(false);
    }
    if from >= file.length {
        return status(stream, 416, "");
    }
    let end = to.min(file.length - 1) + 1;
    let total = match file.fault {
        Fault::Length(total) => total,
        _ => file.length,
    };
    let stated = if file.fault == Fault::OtherRange { from + 1 } else { from };
    let tag = if file.fault == Fault::Changes { number } else { 0 };
    let length = end - from;
    let tag = match file.fault {
        Fault::Untagged => String::new(),
        _ => format!("ETag: \"{tag}\"\r\n"),
    };
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {length}\r\nContent-Range: bytes {stated}-{}/{total}\r\n\
         {tag}{CORS}Accept-Ranges: bytes\r\n\r\n",
        end - 1
    )?;
    match file.fault {
        Fault::Slow => pour(stream, file, from, end, Duration::from_millis(20))?,
        Fault::Truncates => {
            pour(stream, file, from, from + length / 2, Duration::ZERO)?;
            return Ok(false);
        }
        Fault::TooMuch => {
            pour(stream, file, from, end, Duration::ZERO)?;
            stream.write_all(&[b'x'; 4096])?;
            return Ok(false);
        }
        Fault::Untagged => {
            let own = number.to_le_bytes()[0];
            let mut head = file.head.to_vec();
            head.iter_mut().skip(1 << 20).for_each(|byte| *byte = own);
            pour(stream, &HostedFile { head: head.into(), ..file.clone() }, from, end, Duration::ZERO)?;
        }
        _ => pour(stream, file, from, end, Duration::ZERO)?,
    }
    Ok(true)
}

/// Sends bytes of a file, with a pause after each few where one is given.
fn pour(stream: &mut TcpStream, file: &HostedFile, from: u64, to: u64, pause: Duration) -> io::Result<()> {
    let step = if pause.is_zero() { 1 << 16 } else { 1 };
    let mut at = from;
    while at < to {
        let end = to.min(at + step);
        let place = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(file.head.len());
        let mut bytes = file.head[place(at)..place(end)].to_vec();
        bytes.resize(usize::try_from(end - at).unwrap_or(0), 0);
        stream.write_all(&bytes)?;
        thread::sleep(pause);
        at = end;
    }
    Ok(())
}

fn whole(stream: &mut TcpStream, body: &str) -> io::Result<bool> {
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{CORS}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    Ok(true)
}

fn status(stream: &mut TcpStream, code: u16, headers: &str) -> io::Result<bool> {
    write!(stream, "HTTP/1.1 {code} Status\r\nContent-Length: 0\r\n{CORS}{headers}\r\n")?;
    Ok(true)
}
