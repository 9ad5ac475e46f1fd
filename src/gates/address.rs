//! What an IP address is: the one classifier of every gate (spec: security, sections 8, 9 and 17; DESIGN.md, section 9).
//!
//! An IPv6 address that carries an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo) is at least as dangerous as
//! the address inside it: that one is where the packets may end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is, the worse the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressClass {
    /// An ordinary address of the internet.
    Public,
    /// Reserved, documentation, multicast, a relay: nothing that serves.
    Special,
    /// This machine, or a network of one's own.
    Private,
    /// This link alone.
    LinkLocal,
    /// Where clouds hand out the credentials of a machine.
    Metadata,
}

impl AddressClass {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Special => "special",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "metadata",
        }
    }
}

use AddressClass::{LinkLocal, Metadata, Private, Public, Special};

/// Metadata services of clouds; some of them answer in ranges that are otherwise private or public.
const METADATA_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

/// First address, bits that count, class. The first entry that holds an address decides.
const V4: [(Ipv4Addr, u32, AddressClass); 15] = [
    (Ipv4Addr::new(169, 254, 0, 0), 16, LinkLocal),
    (Ipv4Addr::new(0, 0, 0, 0), 8, Private),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Private),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Private),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Private),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Special),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Special),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Special),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Special),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Special),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Special),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Special),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Special),
];

const V6: [(Ipv6Addr, u32, AddressClass); 12] = [
    (Ipv6Addr::UNSPECIFIED, 128, Private),
    (Ipv6Addr::LOCALHOST, 128, Private),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, LinkLocal),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Private),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Private),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Private),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, Special),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Special),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Special),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, Special),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Special),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Special),
];

/// What this address is.
#[must_use]
pub fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    }
}

fn v4(address: Ipv4Addr) -> AddressClass {
    if METADATA_V4.contains(&address) {
        return Metadata;
    }
    let within = |(first, bits, _): &&(Ipv4Addr, u32, AddressClass)| {
        (address.to_bits() ^ first.to_bits()) >> (32 - bits) == 0
    };
    V4.iter().find(within).map_or(Public, |(_, _, class)| *class)
}

fn v6(address: Ipv6Addr) -> AddressClass {
    if METADATA_V6.contains(&address) {
        return Metadata;
    }
    let within = |(first, bits, _): &&(Ipv6Addr, u32, AddressClass)| {
        (address.to_bits() ^ first.to_bits()) >> (128 - bits) == 0
    };
    let own = V6.iter().find(within).map(|(_, _, class)| *class);
    match (own, inside(address)) {
        // Nothing but the address inside says what this is.
        (None, Some(inner)) => v4(inner),
        (Some(own), Some(inner)) => own.max(v4(inner)),
        (own, None) => own.unwrap_or(Public),
    }
}

/// The IPv4 address that an IPv6 address carries.
fn inside(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let pair = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        // `::` and `::1` are themselves; the rest of ::/96 is IPv4-compatible.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => Some(pair(high, low)),
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some(pair(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(pair(high, low)),
        [0x2002, high, low, ..] => Some(pair(high, low)),
        // Teredo hides it behind all ones.
        [0x2001, 0, .., high, low] => Some(pair(!high, !low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(class: AddressClass, texts: &[&str]) {
        for text in texts {
            assert_eq!(classify(text.parse().unwrap()), class, "{text}");
        }
    }

    #[test]
    fn ordinary_addresses_are_public() {
        all(Public, &["8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.0", "11.0.0.0", "9.255.255.255"]);
        all(Public, &["100.63.255.255", "100.128.0.0", "192.167.255.255", "192.169.0.0", "126.255.255.255"]);
        all(Public, &["128.0.0.0", "169.253.255.255", "169.255.0.0", "223.255.255.255", "168.63.129.17"]);
        all(Public, &["2606:4700::1111", "2a00::1", "2400:cb00::1"]);
    }

    #[test]
    fn this_machine_and_ones_own_networks_are_private() {
        all(Private, &["0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "127.0.0.1", "127.255.255.254"]);
        all(Private, &["172.16.0.0", "172.31.255.255", "192.168.0.1", "100.64.0.0", "100.127.255.255"]);
        all(Private, &["::", "::1", "fc00::1", "fdff::1", "fec0::1", "64:ff9b:1::a00:1"]);
    }

    #[test]
    fn link_local_and_metadata_are_known_whatever_range_they_hide_in() {
        all(LinkLocal, &["169.254.0.0", "169.254.255.255", "fe80::1", "febf::1"]);
        all(
            Metadata,
            &["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192"],
        );
        all(Metadata, &["fd00:ec2::254", "fd20:ce::254"]);
    }

    #[test]
    fn what_serves_nobody_is_special() {
        all(Special, &["192.0.0.1", "192.0.2.1", "192.88.99.1", "198.18.0.0", "198.19.255.255"]);
        all(Special, &["198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1"]);
        all(Special, &["255.255.255.255", "100::1", "2001:db8::1", "2001:2::1", "3fff::1", "ff02::1"]);
    }

    #[test]
    fn an_address_inside_another_counts_as_itself_or_worse() {
        all(Public, &["::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::8.8.8.8", "::ffff:0:8.8.8.8"]);
        all(
            Private,
            &["::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0.0.0.0"],
        );
        all(Private, &["64:ff9b::192.168.0.1", "64:ff9b::a00:1", "2002:a00:1::", "::ffff:0:10.0.0.1"]);
        all(Metadata, &["::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::169.254.169.254"]);
        all(Metadata, &["64:ff9b::169.254.169.254", "2002:a9fe:a9fe::1", "2001:0:1:2:3:4:5601:5601"]);
        all(LinkLocal, &["::ffff:169.254.1.1", "64:ff9b::a9fe:101"]);
        // A relay to a public address is still a relay.
        all(Special, &["2002:808:808::1", "2001:0:1:2:3:4:f7f7:f7f7"]);
    }
}
