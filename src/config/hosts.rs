//! Parameters that name machines, and addresses of this one.

use super::kind::{Args, Origin, Shape, only, words};
use super::refusal::Refusal;
use crate::base::node_address::NodeAddress;
use crate::base::num::parse_i64;

/// The name of a host.
pub(super) struct Hostname;

impl Hostname {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("HOST")
    }

    pub(super) fn set(&self, field: &mut Vec<u8>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let name = only(args)?;
        if !name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')) {
            return Err(Refusal::Hostname);
        }
        *field = name.to_vec();
        Ok(())
    }

    pub(super) fn get(&self, field: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(field);
    }
}

/// A host that clients reach, by its name or address, or none.
pub(super) struct Host;

impl Host {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("HOST")
    }

    pub(super) fn set(&self, field: &mut String, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let host = str::from_utf8(only(args)?).map_err(|_| Refusal::Host)?;
        if !host.is_empty() && !NodeAddress::is_host(host) {
            return Err(Refusal::Host);
        }
        *field = host.to_owned();
        Ok(())
    }

    pub(super) fn get(&self, field: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(field.as_bytes());
    }
}

/// Host and port of the server to replicate; so far there can be none.
pub(super) struct Master;

impl Master {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("HOST PORT")
    }

    pub(super) fn set(&self, _: &mut Vec<u8>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let (host, port) = match words(args).collect::<Vec<_>>()[..] {
            [b""] => return Ok(()),
            [no, one] if no.eq_ignore_ascii_case(b"no") && one.eq_ignore_ascii_case(b"one") => return Ok(()),
            [host, port] => (String::from_utf8_lossy(host).into_owned(), parse_i64(port)),
            _ => return Err(Refusal::Arity),
        };
        let port = port.filter(|port| (0..=65_535).contains(port)).ok_or(Refusal::MasterPort)?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        Err(Refusal::NotHere(format!(
            "Tidegate can't replicate yet. To move the data here, delete the line, start the server, and run: \
             tidegate import --follow redis://{host}:{port}"
        )))
    }

    pub(super) fn get(&self, field: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(field);
    }
}

/// The name of a group for clients of Sentinel.
pub(super) struct MasterName;

impl MasterName {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("NAME")
    }

    pub(super) fn set(&self, field: &mut Vec<u8>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let name = only(args)?;
        // Sentinel's messages separate words by spaces.
        let is_sound = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
        if name.is_empty() || !name.iter().all(is_sound) {
            return Err(Refusal::MasterName);
        }
        *field = name.to_vec();
        Ok(())
    }

    pub(super) fn get(&self, field: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(field);
    }
}

/// Addresses to listen on.
pub(super) struct Addresses;

/// The largest number of addresses, as in Redis.
pub(super) const MAX_ADDRESSES: usize = 16;

impl Addresses {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("ADDRESS")
    }

    pub(super) fn set(&self, field: &mut Vec<String>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let addresses: Vec<_> = words(args)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        if addresses.len() > MAX_ADDRESSES {
            return Err(Refusal::TooManyAddresses);
        }
        *field = addresses;
        Ok(())
    }

    pub(super) fn get(&self, field: &[String], out: &mut Vec<u8>) {
        out.extend_from_slice(field.join(" ").as_bytes());
    }
}
