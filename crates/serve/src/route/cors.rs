//! Checks of web origins and host names, against requests from foreign web pages (CORS, DNS rebinding).
//!
//! By default only pages from this machine are allowed. A request that changes something is refused before it
//! has any effect.

use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::headers::text;

const LOCALHOST: &str = "localhost";
/// Header with which browsers report the origin of a request without `Origin`, for example of an image.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The origins of web pages that are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origins {
    /// Pages served from this machine.
    #[default]
    Loopback,
    Any,
    /// These origins, and pages from this machine.
    These(Vec<String>),
}

impl Origins {
    fn allow(&self, origin: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Loopback => is_loopback(origin),
            Self::These(origins) => {
                is_loopback(origin) || origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
            }
        }
    }

    /// True if the request does not come from a web page, or comes from one that may make it.
    pub(crate) fn permit(&self, changes: bool, headers: &HeaderMap) -> bool {
        match headers.get(header::ORIGIN) {
            _ if !changes => true,
            // Without either header it is a program, or a browser too old to say where the request comes
            // from.
            None => text(headers, &SEC_FETCH_SITE) != Some("cross-site"),
            Some(origin) => origin.to_str().is_ok_and(|origin| self.allow(origin) || is_own(origin, headers)),
        }
    }

    /// True if the name in `Host` is allowed for this machine: an address, `localhost`, the machine's own
    /// `hostname`, or a name of an allowed origin.
    pub(crate) fn permit_host(&self, headers: &HeaderMap, hostname: &str) -> bool {
        let Some(own) = headers.get(header::HOST) else {
            return true;
        };
        let Ok(own) = own.to_str() else { return false };
        let named = |origins: &[String]| origins.iter().any(|origin| host_of(origin) == Some(own));
        is_own_name(own, hostname)
            || match self {
                Self::Any => true,
                Self::Loopback => false,
                Self::These(origins) => named(origins),
            }
    }

    /// Adds the headers that let the page read the answer.
    pub(crate) fn grant(&self, origin: Option<&HeaderValue>, answer: &mut HeaderMap) {
        let Some(origin) = origin else { return };
        if origin.to_str().is_ok_and(|origin| self.allow(origin)) {
            answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            // Where every origin is allowed, no page gets the cookies of a proxy in front of this server.
            if *self != Self::Any {
                answer.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            }
        }
        // Caches must not hand one page's grant to another.
        answer.append(header::VARY, HeaderValue::from_static("origin"));
    }

    /// Answers a preflight for a path, which takes any method or those of llama-server; the origin itself is granted
    /// by [`Origins::grant`].
    pub(crate) fn preflight(is_any: bool, request: &HeaderMap, answer: &mut HeaderMap) {
        let methods = match is_any {
            true => HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE, OPTIONS"),
            false => HeaderValue::from_static("GET, POST, DELETE, OPTIONS"),
        };
        answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        let asked = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let headers = asked.unwrap_or(HeaderValue::from_static("authorization, content-type, x-api-key"));
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, headers);
        answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
}

fn is_loopback(origin: &str) -> bool {
    let host = origin.parse::<Uri>().ok().and_then(|origin| origin.host().map(str::to_owned));
    host.is_some_and(|host| {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    })
}

fn host_of(origin: &str) -> Option<&str> {
    Some(origin.split_once("://")?.1)
}

/// DECISION: names of private domains (`box.lan`, `printer`) are not enough. The network that a laptop is in
/// hands out its search domain and answers for such names, so a page of that network could point one at this
/// machine.
fn is_own_name(authority: &str, hostname: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(_) => return true,
        None => authority.split(':').next().unwrap_or_default(),
    };
    let host = host.trim_end_matches('.');
    // Browsers resolve everything below `localhost` themselves (RFC 6761).
    let below = host.len().checked_sub(LOCALHOST.len()).and_then(|at| host.split_at_checked(at));
    below.is_some_and(|(name, top)| {
        top.eq_ignore_ascii_case(LOCALHOST) && (name.is_empty() || name.ends_with('.'))
    }) || host.parse::<std::net::Ipv4Addr>().is_ok()
        || (!host.is_empty() && host.eq_ignore_ascii_case(hostname))
}

/// The page came from this server itself.
fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let own = text(headers, &header::HOST);
    own.is_some() && host_of(origin) == own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(origins: &Origins, changes: bool, origin: &'static str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("box.lan:8080"));
        headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        origins.permit(changes, &headers)
    }

    #[test]
    fn a_foreign_page_may_look_but_change_nothing() {
        let origins = Origins::Loopback;
        for own in ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:1", "http://box.lan:8080"] {
            assert!(permits(&origins, true, own), "{own}");
        }
        for foreign in
            ["https://evil.example", "http://localhost.evil.example", "null", "http://127.0.0.1.nip.io"]
        {
            assert!(!permits(&origins, true, foreign), "{foreign}");
            assert!(permits(&origins, false, foreign), "{foreign}");
        }
        assert!(permits(&Origins::Any, true, "https://evil.example"));
        let mut headers = HeaderMap::new();
        assert!(origins.permit(true, &headers));
        headers.insert(SEC_FETCH_SITE, HeaderValue::from_static("cross-site"));
        assert!(!origins.permit(true, &headers), "an image that unloads");
    }

    #[test]
    fn a_public_name_that_points_here_is_not_ours_unless_allowed() {
        let asks = |origins: &Origins, host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            origins.permit_host(&headers, "Box")
        };
        for own in ["localhost:8080", "127.0.0.1", "[::1]:8080", "box", "BOX:8080", "a.localhost."] {
            assert!(asks(&Origins::Loopback, own), "{own}");
        }
        for foreign in [
            "evil.example:8080",
            "127.0.0.1.nip.io",
            "localhost.evil.example",
            "xlan.example",
            "box.lan:8080",
            "printer:8080",
        ] {
            assert!(!asks(&Origins::Loopback, foreign), "{foreign}");
        }
        let these = Origins::These(vec!["https://app.example".to_owned()]);
        assert!(asks(&these, "app.example"));
        assert!(!asks(&these, "evil.example"));
        assert!(asks(&Origins::Any, "evil.example"));
        assert!(Origins::Loopback.permit_host(&HeaderMap::new(), ""));
    }

    #[test]
    fn only_an_allowed_page_may_read_the_answer() {
        let granted = |origins: &Origins, origin| {
            let mut answer = HeaderMap::new();
            origins.grant(Some(&HeaderValue::from_static(origin)), &mut answer);
            assert_eq!(answer[header::VARY], "origin");
            answer.get(header::ACCESS_CONTROL_ALLOW_ORIGIN).cloned()
        };
        let these = Origins::These(vec!["https://app.example".to_owned()]);
        assert_eq!(granted(&these, "https://app.example").unwrap(), "https://app.example");
        assert_eq!(granted(&these, "https://evil.example"), None);
        assert_eq!(granted(&Origins::Loopback, "http://localhost:1").unwrap(), "http://localhost:1");
    }
}
