//! Tests of hosts that join a fleet, connect to each other, renew certificates and are revoked, and of
//! refused hosts.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use plimsoll_identity::{
    AdmissionRefusal, FleetAuthority, FleetIssuer, Grant, HostIdentity, IdentityError, JoinRequest, PeerTls,
    RevokedSerials, now,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

const HOUR: Duration = Duration::from_secs(3600);

fn issuer() -> FleetIssuer {
    FleetIssuer { host: "box-1".to_owned(), address: "10.0.0.1:7079".to_owned() }
}

fn fleet() -> (TempDir, FleetAuthority) {
    let folder = tempfile::tempdir().unwrap();
    let authority = FleetAuthority::create(folder.path(), "lab", issuer(), 24 * HOUR, now()).unwrap();
    (folder, authority)
}

fn request(secret: &str, host: &str) -> JoinRequest {
    JoinRequest { secret: secret.to_owned(), host: host.to_owned(), public_key: vec![7; 32] }
}

/// A host of the fleet at this time, as its own folder has it: its certificate is signed for a key of this
/// test.
fn host(authority: &FleetAuthority, name: &str, at: u64) -> HostIdentity {
    let key = ring::signature::Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).unwrap();
    let pair = ring::signature::Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap();
    let public_key = ring::signature::KeyPair::public_key(&pair).as_ref().to_vec();
    let secret = authority.invite(HOUR, at).unwrap().secret;
    let grant = authority.admit(&JoinRequest { secret, host: name.to_owned(), public_key }, at).unwrap();
    identity(&grant, key.as_ref())
}

/// The file of a host, as `join` writes it.
fn identity(grant: &Grant, key: &[u8]) -> HostIdentity {
    use base64::Engine;
    let mut file = serde_json::to_value(grant).unwrap();
    file["address"] = "10.0.0.2:7079".into();
    file["key"] = base64::prelude::BASE64_STANDARD.encode(key).into();
    serde_json::from_value(file).unwrap()
}

fn tls(identity: &HostIdentity) -> PeerTls {
    PeerTls::new(identity, &RevokedSerials::default(), false).unwrap()
}

/// Outcome of a handshake: what the accepting side knows of the other, and what the connecting side says.
async fn meet(
    accepting: &PeerTls,
    connecting: &PeerTls,
    name: &str,
) -> (Result<String, String>, Result<(), String>) {
    let (one, two) = duplex(64 * 1024);
    let accept = async {
        let (mut stream, shown) = accepting.accept(one).await.map_err(|refused| refused.to_string())?;
        let _ = stream.write_all(b"hello").await;
        let _ = stream.shutdown().await;
        Ok(shown.map(|shown| shown.host).unwrap_or_default())
    };
    let connect = async {
        let mut stream = connecting.connect(two, name).await.map_err(|error| error.to_string())?;
        // The other side's refusal of a certificate comes after the handshake of this one.
        let mut text = Vec::new();
        let read = stream.read_to_end(&mut text).await.map_err(|error| error.to_string())?;
        if read == 5 { Ok(()) } else { Err("nothing came".to_owned()) }
    };
    tokio::join!(accept, connect)
}

#[tokio::test]
async fn two_hosts_of_a_fleet_know_each_other_by_name() {
    let (folder, authority) = fleet();
    let one = tls(&HostIdentity::read(folder.path()).unwrap());
    let two = tls(&host(&authority, "box-2", now()));
    assert_eq!(meet(&one, &two, "box-1").await, (Ok("box-2".to_owned()), Ok(())));
    // It is a host of the fleet, and another one than was asked for.
    let (_, wrong) = meet(&one, &two, "box-3").await;
    assert!(wrong.unwrap_err().contains("host 'box-1' answered at the address of host 'box-3'"));
}

#[tokio::test]
async fn a_stranger_an_expired_and_a_revoked_host_are_refused_in_words() {
    let (folder, authority) = fleet();
    let own = HostIdentity::read(folder.path()).unwrap();
    let one = tls(&own);
    let (_other, foreign) = fleet();
    let foreign = tls(&host(&foreign, "box-2", now()));
    let (accepted, connected) = meet(&one, &foreign, "box-1").await;
    assert!(accepted.is_err());
    assert_eq!(connected.unwrap_err(), "its certificate belongs to another fleet");
    let old = host(&authority, "box-3", now() - 48 * 3600);
    let (accepted, _) = meet(&one, &tls(&old), "box-1").await;
    assert!(accepted.unwrap_err().contains("has expired"));
    let early = host(&authority, "box-4", now() + 48 * 3600);
    let (accepted, _) = meet(&one, &tls(&early), "box-1").await;
    assert!(accepted.unwrap_err().contains("not valid yet"));
    let revoked = host(&authority, "box-5", now());
    let serials = RevokedSerials::read(folder.path());
    let (accepting, connecting) = (PeerTls::new(&own, &serials, false).unwrap(), tls(&revoked));
    assert!(meet(&accepting, &connecting, "box-1").await.0.is_ok());
    let (new, kept) = serials.add([&revoked.serial].into_iter());
    assert_eq!((new.len(), kept.is_ok()), (1, true));
    let (accepted, connected) = meet(&accepting, &connecting, "box-1").await;
    assert_eq!(accepted.unwrap_err(), "its certificate is revoked");
    assert!(connected.unwrap_err().contains("CertificateRevoked"));
    // The other way round as well, and after a restart.
    let again = PeerTls::new(&own, &RevokedSerials::read(folder.path()), false).unwrap();
    assert!(meet(&connecting, &again, "box-5").await.1.is_err());
    assert!(serials.add([&revoked.serial].into_iter()).0.is_empty(), "it is no news");
}

#[tokio::test]
async fn a_stranger_without_a_certificate_comes_only_where_the_authority_is() {
    let (folder, authority) = fleet();
    let own = HostIdentity::read(folder.path()).unwrap();
    let invitation = authority.invite(HOUR, now()).unwrap();
    for (takes_strangers, expected) in [(true, true), (false, false)] {
        let accepting = PeerTls::new(&own, &RevokedSerials::default(), takes_strangers).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let new = tempfile::tempdir().unwrap();
        let requested = plimsoll_identity::Invitation { address, ..invitation.clone() };
        let join = plimsoll_identity::join(new.path(), &requested, "box-9", None);
        let accept = async {
            let (stream, _) = listener.accept().await.unwrap();
            accepting.accept(stream).await.map(|(_, shown)| shown.is_none()).is_ok_and(|stranger| stranger)
        };
        let (joined, accepted) = tokio::join!(join, accept);
        assert_eq!(accepted, expected);
        assert!(joined.is_err() && !HostIdentity::exists(new.path()), "no answer, no identity");
    }
}

#[tokio::test]
async fn a_host_that_is_not_the_one_of_the_invitation_learns_no_secret() {
    let (folder, authority) = fleet();
    let invitation = authority.invite(HOUR, now()).unwrap();
    let (_other, impostor) = fleet();
    let impostor = PeerTls::new(&host(&impostor, "box-2", now()), &RevokedSerials::default(), true).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let new = tempfile::tempdir().unwrap();
    let requested = plimsoll_identity::Invitation { address, ..invitation };
    let accept = async {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok((mut stream, _)) = impostor.accept(stream).await else { return 0 };
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.unwrap_or_default()
    };
    let (joined, read) = tokio::join!(plimsoll_identity::join(new.path(), &requested, "box-9", None), accept);
    assert!(joined.unwrap_err().to_string().contains("another fleet"));
    assert_eq!(read, 0);
    drop(folder);
}

#[test]
fn an_invitation_is_good_once_and_for_its_time() {
    let (_folder, authority) = fleet();
    let at = now();
    let secret = authority.invite(HOUR, at).unwrap().secret;
    let admit = |secret: &str, host: &str, at| authority.admit(&request(secret, host), at);
    assert!(matches!(admit("../issued.json", "box-2", at), Err(AdmissionRefusal::Unknown)));
    assert!(matches!(admit("", "box-2", at), Err(AdmissionRefusal::Unknown)));
    assert!(matches!(admit(&secret, "box-2", at + 3600), Err(AdmissionRefusal::Expired)));
    // What is refused for the host's name does not use it up.
    assert!(matches!(admit(&secret, "box 2", at), Err(AdmissionRefusal::Name(_))));
    assert!(matches!(admit(&secret, "box-1", at), Err(AdmissionRefusal::Taken(_))));
    let mut short = request(&secret, "box-2");
    short.public_key.pop();
    assert!(matches!(authority.admit(&short, at), Err(AdmissionRefusal::PublicKey)));
    assert_eq!(admit(&secret, "box-2", at).unwrap().host, "box-2");
    assert!(matches!(admit(&secret, "box-3", at), Err(AdmissionRefusal::Used)));
    // Each certificate is in the register, and its time ends there too.
    let names = |at| authority.issued(at).unwrap().into_iter().map(|one| one.host).collect::<Vec<_>>();
    assert_eq!(names(at), ["box-1", "box-2"]);
    assert!(names(at + 25 * 3600).is_empty());
}

#[test]
fn a_revoked_host_renews_nothing_and_may_be_invited_anew() {
    let (_folder, authority) = fleet();
    let two = host(&authority, "box-2", now());
    let renewed = authority.renew("box-2", &two.serial, &[8; 32], now()).unwrap();
    assert_ne!(renewed.serial, two.serial);
    assert!(authority.renew("box-1", &two.serial, &[8; 32], now()).is_err(), "of another host");
    let revoked = authority.revoke("box-2", now()).unwrap();
    assert_eq!(revoked.len(), 2);
    for serial in [&two.serial, &renewed.serial] {
        assert!(matches!(
            authority.renew("box-2", serial, &[8; 32], now()),
            Err(AdmissionRefusal::Revoked(_))
        ));
    }
    assert!(authority.revoke("box-7", now()).unwrap().is_empty());
    host(&authority, "box-2", now());
}

#[test]
fn a_host_that_renews_without_end_is_refused_can_be_revoked_and_shuts_out_no_other() {
    let (folder, authority) = fleet();
    let two = host(&authority, "box-2", now());
    let renewals = (0..300).map(|_| authority.renew("box-2", &two.serial, &[8; 32], now()));
    let refused = renewals.filter(|renewed| matches!(renewed, Err(AdmissionRefusal::Often(_)))).count();
    assert!(refused > 280, "{refused}");
    let revoked = authority.revoke("box-2", now()).unwrap();
    assert!(revoked.len() <= 16, "{}", revoked.len());
    // Another one renews, and the same joins anew, as often as it is revoked.
    let three = host(&authority, "box-3", now());
    authority.renew("box-3", &three.serial, &[8; 32], now()).unwrap();
    for _ in 0..20 {
        host(&authority, "box-2", now());
        authority.revoke("box-2", now()).unwrap();
    }
    // A register that is full of revoked certificates admits a host.
    let register = folder.path().join("authority/issued.json");
    let one = |at: u32| json!({ "serial": format!("{at:x}"), "host": "box-4", "expires": now() + 3600, "is_revoked": true });
    let full: Vec<_> = (0..20_000).map(one).collect();
    std::fs::write(&register, serde_json::to_vec(&full).unwrap()).unwrap();
    host(&authority, "box-5", now());
}

#[test]
fn a_third_before_its_end_a_certificate_is_renewed() {
    let (folder, authority) = fleet();
    let own = HostIdentity::read(folder.path()).unwrap();
    assert_eq!(own.renews_at(), own.issued + 16 * 3600);
    let renewed = authority.renew_own(folder.path(), &own, now()).unwrap();
    assert_eq!(HostIdentity::read(folder.path()).unwrap().serial, renewed.serial);
    assert_ne!(renewed.serial, own.serial);
}

#[test]
fn secrets_lie_in_files_of_this_user_alone_and_in_no_debug_output() {
    let (folder, authority) = fleet();
    let own = HostIdentity::read(folder.path()).unwrap();
    authority.invite(HOUR, now()).unwrap();
    let mut files = 0;
    for file in walk(folder.path()) {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
        files += 1;
    }
    assert!(files >= 4, "{files}");
    assert!(!format!("{own:?}{authority:?}{:?}", tls(&own)).contains("key"));
    // One that others can read is not used.
    let path = folder.path().join("host.json");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(HostIdentity::read(folder.path()), Err(IdentityError::NotPrivate(_))));
    assert!(matches!(
        FleetAuthority::create(folder.path(), "lab", issuer(), HOUR, now()),
        Err(IdentityError::Exists(_))
    ));
}

#[test]
fn a_damaged_identity_is_an_error() {
    let (folder, authority) = fleet();
    let two = host(&authority, "box-2", now());
    let sound = serde_json::to_vec(&two).unwrap();
    plimsoll_fuzz::mutants(&[&sound], &[b"certificate", b"authority", b"key"], |mutant| {
        if let Ok(identity) = serde_json::from_slice::<HostIdentity>(mutant) {
            let _ = (PeerTls::new(&identity, &RevokedSerials::default(), false), identity.renews_at());
        }
    });
    let path = folder.path().join("host.json");
    std::fs::write(&path, "{}").unwrap();
    assert!(matches!(HostIdentity::read(folder.path()), Err(IdentityError::Content { .. })));
    // A key that is not the certificate's.
    let mut file = serde_json::to_value(&two).unwrap();
    file["key"] = serde_json::to_value(host(&authority, "box-3", now())).unwrap()["key"].clone();
    let mixed: HostIdentity = serde_json::from_value(file).unwrap();
    assert!(PeerTls::new(&mixed, &RevokedSerials::default(), false).is_err());
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
