//! Creates keys and certificates.

use super::{Action, Authority, Keyring, Lifetimes, PrivateKey, ServingCertificate, after};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::collections::BTreeSet;
use time::OffsetDateTime;

/// Certificates are valid from some time before their creation, because clocks differ.
const BACKDATE: SignedDuration = SignedDuration::from_mins(60);

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A name, key or stored certificate is invalid.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The CA of the plan does not exist, or has no key.
    #[error("the CA {0:?} is not there or has no key")]
    NoAuthority(String),
}

/// Returns the keyring after `action`, or `None` if there is nothing to do.
///
/// # Errors
/// Returns an error if a certificate cannot be created.
pub fn carry_out(
    action: &Action,
    keyring: Option<&Keyring>,
    now: Timestamp,
    names: &BTreeSet<String>,
    lifetimes: &Lifetimes,
) -> Result<Option<Keyring>, IssueError> {
    match (action, keyring) {
        (Action::Keep { .. }, _) => Ok(None),
        (Action::Found, _) | (_, None) => found(now, names, lifetimes).map(Some),
        (Action::AddAuthority, Some(keyring)) => {
            let mut keyring = keyring.clone();
            keyring.authorities.push(authority(now, lifetimes)?);
            Ok(Some(keyring))
        }
        (Action::Issue { by }, Some(keyring)) => {
            let mut keyring = keyring.clone();
            // Earlier names are kept: replicas may be reached by different names.
            let names: BTreeSet<String> = names.union(&keyring.serving.names).cloned().collect();
            keyring.serving = serving(&mut keyring.authorities, by, now, &names, lifetimes)?;
            Ok(Some(keyring))
        }
        (Action::Drop { ids }, Some(keyring)) => {
            let mut keyring = keyring.clone();
            keyring
                .authorities
                .retain(|authority| !ids.contains(&authority.id));
            Ok(Some(keyring))
        }
    }
}

fn found(
    now: Timestamp,
    names: &BTreeSet<String>,
    lifetimes: &Lifetimes,
) -> Result<Keyring, IssueError> {
    let mut authorities = vec![authority(now, lifetimes)?];
    let id = authorities[0].id.clone();
    let serving = serving(&mut authorities, &id, now, names, lifetimes)?;
    Ok(Keyring {
        authorities,
        serving,
    })
}

fn authority(now: Timestamp, lifetimes: &Lifetimes) -> Result<Authority, IssueError> {
    let key = KeyPair::generate()?;
    let until = after(now, lifetimes.authority);
    // Names are distinct, because a verifier finds the issuer of a certificate by its name.
    let id = format!("muster-webhook-ca-{}", now.as_second());
    let mut params = params(Vec::new(), &id, now, until)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(Authority {
        certificate: params.self_signed(&key)?.pem(),
        key: Some(PrivateKey(key.serialize_pem())),
        id,
        since: now,
        until,
        signed_until: now,
    })
}

/// Issues a serving certificate by the CA `id`, and drops the keys of all earlier CAs.
fn serving(
    authorities: &mut [Authority],
    id: &str,
    now: Timestamp,
    names: &BTreeSet<String>,
    lifetimes: &Lifetimes,
) -> Result<ServingCertificate, IssueError> {
    let missing = || IssueError::NoAuthority(id.to_owned());
    let position = authorities.iter().position(|authority| authority.id == id);
    let (older, rest) = authorities.split_at_mut(position.ok_or_else(missing)?);
    let signing = rest.first_mut().ok_or_else(missing)?;
    let ca_key = KeyPair::from_pem(&signing.key.as_ref().ok_or_else(missing)?.0)?;
    let issuer = Issuer::from_ca_cert_pem(&signing.certificate, ca_key)?;
    let until = after(now, lifetimes.serving).min(signing.until);
    let key = KeyPair::generate()?;
    let mut params = params(
        names.iter().cloned().collect(),
        "muster-webhook",
        now,
        until,
    )?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer)?.pem();
    signing.signed_until = signing.signed_until.max(until);
    for authority in older {
        authority.key = None;
    }
    Ok(ServingCertificate {
        certificate,
        key: PrivateKey(key.serialize_pem()),
        names: names.clone(),
        issuer: id.to_owned(),
        since: now,
        until,
    })
}

fn params(
    names: Vec<String>,
    common_name: &str,
    now: Timestamp,
    until: Timestamp,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.not_before = offset(now.saturating_sub(BACKDATE).unwrap_or(now));
    params.not_after = offset(until);
    Ok(params)
}

/// Returns the same second in rcgen's type. A time out of its range becomes the epoch; no lifetime reaches
/// that.
fn offset(time: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
