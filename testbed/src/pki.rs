//! The keys and certificates of a testbed: one CA signs all of them; they are short-lived and
//! private to one folder.
//!
//! All keys are ECDSA P-256, since the API server signs service account tokens with ES256.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::error::{Error, Result};

/// The host names of the API servers, the aggregated API server and the webhook.
const SERVER_NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default.svc",
    "karmada-aggregated-apiserver.karmada-system.svc",
    "karmada-webhook.karmada-system.svc",
];

/// Loopback, and the first address of the service range.
const SERVER_ADDRESSES: [[u8; 4]; 2] = [[127, 0, 0, 1], [10, 96, 0, 1]];

/// The common name of the certificate with which an API server calls an aggregated one.
pub(super) const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// The paths of the PEM files, which only their owner can read.
#[derive(Debug, Clone)]
pub(super) struct Pki {
    pub(super) ca: PathBuf,
    pub(super) server: KeyFiles,
    pub(super) admin: KeyFiles,
    pub(super) front_proxy: KeyFiles,
    /// With these, API servers call kubelets.
    pub(super) kubelet_client: KeyFiles,
    pub(super) service_account_key: PathBuf,
    pub(super) service_account_public: PathBuf,
    /// The folder of the server's pair under the names `tls.crt` and `tls.key`.
    pub(super) webhook_dir: PathBuf,
    /// The CA's certificate in PEM, for CA bundles.
    pub(super) ca_pem: String,
    dir: PathBuf,
    issuer: Arc<Issuer<'static, KeyPair>>,
}

/// The certificates of a node.
#[derive(Debug)]
pub(super) struct NodeKeys {
    /// The kubelet's own, by which API servers know it.
    pub(super) client: KeyFiles,
    /// That of the server at the node's address.
    pub(super) server: KeyFiles,
}

#[derive(Debug, Clone)]
pub(super) struct KeyFiles {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl Pki {
    /// Creates new keys and certificates in `dir`.
    pub(super) fn create(dir: &Path) -> Result<Self> {
        let webhook_dir = dir.join("webhook");
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(&webhook_dir)
            .map_err(Error::io("create", &webhook_dir))?;

        let (ca_pem, issuer) = authority()?;
        let ca = dir.join("ca.crt");
        write_private(&ca, &ca_pem)?;

        let (cert, key) = issue(&issuer, server_params()?)?;
        let server = write_pair(&cert, &key, dir.join("server.crt"), dir.join("server.key"))?;
        write_pair(
            &cert,
            &key,
            webhook_dir.join("tls.crt"),
            webhook_dir.join("tls.key"),
        )?;
        let (cert, key) = issue(
            &issuer,
            client_params("system:admin", Some("system:masters")),
        )?;
        let admin = write_pair(&cert, &key, dir.join("admin.crt"), dir.join("admin.key"))?;
        let (cert, key) = issue(&issuer, client_params(FRONT_PROXY_NAME, None))?;
        let front_proxy = write_pair(&cert, &key, dir.join("front.crt"), dir.join("front.key"))?;
        let user = "kube-apiserver-kubelet-client";
        let (cert, key) = issue(&issuer, client_params(user, Some("system:masters")))?;
        let kubelet_client = write_pair(
            &cert,
            &key,
            dir.join("kubelet-client.crt"),
            dir.join("kubelet-client.key"),
        )?;

        let tokens = KeyPair::generate()?;
        let service_account_key = dir.join("service-account.key");
        let service_account_public = dir.join("service-account.pub");
        write_private(&service_account_key, &tokens.serialize_pem())?;
        write_private(&service_account_public, &tokens.public_key_pem())?;
        Ok(Self {
            ca,
            server,
            admin,
            front_proxy,
            kubelet_client,
            service_account_key,
            service_account_public,
            webhook_dir,
            ca_pem,
            dir: dir.to_owned(),
            issuer: Arc::new(issuer),
        })
    }

    /// Creates the certificates of the node of this name, which is its address.
    pub(super) fn node(&self, cluster: &str, address: Ipv4Addr) -> Result<NodeKeys> {
        let file = |name: &str| self.dir.join(format!("{cluster}-{address}-{name}"));
        let user = format!("system:node:{address}");
        let (cert, key) = issue(&self.issuer, client_params(&user, Some("system:nodes")))?;
        let client = write_pair(&cert, &key, file("kubelet.crt"), file("kubelet.key"))?;
        let mut params = server_params()?;
        params.subject_alt_names = vec![SanType::IpAddress(address.into())];
        let (cert, key) = issue(&self.issuer, params)?;
        let server = write_pair(&cert, &key, file("server.crt"), file("server.key"))?;
        Ok(NodeKeys { client, server })
    }
}

/// Writes a file that only its owner can read.
pub(super) fn write_private(path: &Path, content: &str) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).map_err(Error::io("create", path))?;
    file.write_all(content.as_bytes())
        .map_err(Error::io("write", path))
}

fn authority() -> Result<(String, Issuer<'static, KeyPair>)> {
    let key = KeyPair::generate()?;
    let mut params = named("muster-testbed-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let pem = params.self_signed(&key)?.pem();
    Ok((pem, Issuer::new(params, key)))
}

fn issue(
    issuer: &Issuer<'static, KeyPair>,
    params: CertificateParams,
) -> Result<(String, KeyPair)> {
    let key = KeyPair::generate()?;
    let cert = params.signed_by(&key, issuer)?;
    Ok((cert.pem(), key))
}

fn server_params() -> Result<CertificateParams> {
    let mut params = named("server", None);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for name in SERVER_NAMES {
        params
            .subject_alt_names
            .push(SanType::DnsName(name.try_into()?));
    }
    let addresses = SERVER_ADDRESSES.map(|address| SanType::IpAddress(address.into()));
    params.subject_alt_names.extend(addresses);
    Ok(params)
}

fn client_params(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = named(name, group);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn named(common_name: &str, organization: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
    }
    params.use_authority_key_identifier_extension = true;
    // A testbed lives for hours; one hour earlier tolerates a clock that was just set.
    params.not_before = OffsetDateTime::now_utc() - Duration::HOUR;
    params.not_after = OffsetDateTime::now_utc() + Duration::days(30);
    params
}

fn write_pair(
    cert: &str,
    key: &KeyPair,
    cert_path: PathBuf,
    key_path: PathBuf,
) -> Result<KeyFiles> {
    write_private(&cert_path, cert)?;
    write_private(&key_path, &key.serialize_pem())?;
    Ok(KeyFiles {
        cert: cert_path,
        key: key_path,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    /// Runs OpenSSL, an independent implementation.
    fn openssl(args: &[&str]) -> String {
        let output = Command::new("openssl").args(args).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn certificates_chain_to_the_ca_and_say_what_the_servers_ask_for() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::create(dir.path()).unwrap();
        let ca = pki.ca.to_str().unwrap();
        let show = |files: &KeyFiles, purpose: &str| {
            let cert = files.cert.to_str().unwrap();
            openssl(&["verify", "-purpose", purpose, "-CAfile", ca, cert]);
            openssl(&[
                "x509",
                "-noout",
                "-subject",
                "-ext",
                "subjectAltName",
                "-in",
                cert,
            ])
        };
        let server = show(&pki.server, "sslserver");
        for name in SERVER_NAMES {
            assert!(server.contains(&format!("DNS:{name}")), "{server}");
        }
        assert!(server.contains("127.0.0.1"), "{server}");
        let admin = show(&pki.admin, "sslclient");
        assert!(
            admin.contains("system:masters") && admin.contains("system:admin"),
            "{admin}"
        );
        assert!(show(&pki.front_proxy, "sslclient").contains(FRONT_PROXY_NAME));

        let derived = openssl(&[
            "pkey",
            "-pubout",
            "-in",
            pki.service_account_key.to_str().unwrap(),
        ]);
        let stored = fs::read_to_string(&pki.service_account_public).unwrap();
        assert_eq!(derived.replace('\r', ""), stored.replace('\r', ""));
    }

    #[test]
    fn nobody_else_can_read_the_keys() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::create(&dir.path().join("pki")).unwrap();
        for key in [pki.server.key, pki.admin.key, pki.service_account_key] {
            assert_eq!(
                fs::metadata(key).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        assert_eq!(
            fs::metadata(pki.webhook_dir).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }
}
