//! AES-256-GCM envelopes: a random data key for each value, wrapped by the key encryption key
//! (spec: security, section 6; the layout is shared with peers).

use aes_gcm::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm::{Aes256Gcm, Key, Nonce};
use nylorun_actors::rules::models::Sealed;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{Kek, VaultError};

const NONCE: usize = 12;
const WRAPPED: usize = NONCE + 32 + 16;

/// Chance of one sealing; fixed in tests only.
struct Chance {
    dek: Zeroizing<[u8; 32]>,
    nonce: [u8; NONCE],
    wrap_nonce: [u8; NONCE],
}

pub(super) fn seal(kek: &Kek, aad: &[u8], plaintext: &[u8]) -> Result<Sealed, VaultError> {
    let chance =
        Chance { dek: Zeroizing::new(rand::random()), nonce: rand::random(), wrap_nonce: rand::random() };
    seal_with(kek, aad, plaintext, &chance)
}

fn seal_with(kek: &Kek, aad: &[u8], plaintext: &[u8], chance: &Chance) -> Result<Sealed, VaultError> {
    let ciphertext = encrypt(&chance.dek, chance.nonce, aad, plaintext)?;
    let mut wrapped_dek = chance.wrap_nonce.to_vec();
    wrapped_dek.extend(encrypt(kek.bytes(), chance.wrap_nonce, b"", chance.dek.as_slice())?);
    Ok(Sealed { kek_id: kek.id().to_owned(), nonce: chance.nonce.to_vec(), ciphertext, wrapped_dek })
}

pub(super) fn open(kek: &Kek, aad: &[u8], sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    if sealed.kek_id != kek.id() || sealed.wrapped_dek.len() != WRAPPED {
        return Err(VaultError::Unreadable);
    }
    let (wrap_nonce, wrapped) = sealed.wrapped_dek.split_at(NONCE);
    let dek = decrypt(kek.bytes(), wrap_nonce, b"", wrapped)?;
    let dek: Zeroizing<[u8; 32]> =
        Zeroizing::new(dek.as_slice().try_into().map_err(|_| VaultError::Unreadable)?);
    decrypt(&dek, &sealed.nonce, aad, &sealed.ciphertext)
}

fn encrypt(key: &[u8; 32], nonce: [u8; NONCE], aad: &[u8], msg: &[u8]) -> Result<Vec<u8>, VaultError> {
    let cipher = Aes256Gcm::new(<&Key<Aes256Gcm>>::from(key));
    cipher.encrypt(&Nonce::from(nonce), Payload { msg, aad }).map_err(|_| VaultError::Unreadable)
}

fn decrypt(key: &[u8; 32], nonce: &[u8], aad: &[u8], msg: &[u8]) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let nonce: [u8; NONCE] = nonce.try_into().map_err(|_| VaultError::Unreadable)?;
    let cipher = Aes256Gcm::new(<&Key<Aes256Gcm>>::from(key));
    let plaintext = cipher.decrypt(&Nonce::from(nonce), Payload { msg, aad });
    plaintext.map(Zeroizing::new).map_err(|_| VaultError::Unreadable)
}

/// HMAC-SHA-256 under a key that is derived from the key encryption key for this purpose alone.
pub(super) fn fingerprint(kek: &Kek, text: &[u8]) -> String {
    let derived = Zeroizing::new(hmac(kek.bytes(), b"nylorun/fingerprint/v1"));
    hex::encode(hmac(&derived, text))
}

/// HMAC-SHA-256 (RFC 2104) with a key of one hash's length.
fn hmac(key: &[u8; 32], text: &[u8]) -> [u8; 32] {
    let pad = |with: u8| {
        let mut block = Zeroizing::new([with; 64]);
        block.iter_mut().zip(key).for_each(|(b, k)| *b ^= k);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36).as_slice()).chain_update(text).finalize();
    Sha256::new().chain_update(pad(0x5c).as_slice()).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting<const N: usize>(from: u8) -> [u8; N] {
        std::array::from_fn(|i| from + u8::try_from(i).expect("small"))
    }

    const AAD: &str = r#"{"credentialId":"host-model","model":"m-1","provider":"custom","scope":"host","type":"model","vaultId":"host"}"#;
    const PLAINTEXT: &str = r#"{"apiKey":"k-é"}"#;

    fn sealed() -> (Kek, Sealed) {
        let kek = Kek::from_bytes(counting(0));
        let chance =
            Chance { dek: Zeroizing::new(counting(100)), nonce: counting(200), wrap_nonce: counting(50) };
        let sealed = seal_with(&kek, AAD.as_bytes(), PLAINTEXT.as_bytes(), &chance).expect("sealed");
        (kek, sealed)
    }

    /// The expected values were computed with another implementation (Python's `cryptography`, OpenSSL below it).
    #[test]
    fn the_layout_is_the_one_that_peers_write() {
        let (_, sealed) = sealed();
        assert_eq!(sealed.kek_id, "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd");
        assert_eq!(sealed.nonce, counting::<12>(200));
        assert_eq!(
            hex::encode(&sealed.ciphertext),
            "1760fbf5361d000b878374cd283d8b48fdce7ced8b4d0aa7c2999ded636423cbde"
        );
        assert_eq!(
            hex::encode(&sealed.wrapped_dek),
            "32333435363738393a3b3c3da23e89a7ad55eb88016a84e92b9c8d8b12c66df6f134dd90ad6775e737b219f1e278e5877d2ea7b62134daf3808d2de7"
        );
    }

    #[test]
    fn fingerprints_are_hmac_sha_256_under_a_derived_key() {
        assert_eq!(
            fingerprint(&Kek::from_bytes(counting(0)), br#"{"a":1}"#),
            "a3616f8689381955a668cab8ea857abc0872d1f5b860f7632decb855b99c7f9c"
        );
    }

    #[test]
    fn a_sealed_value_opens_only_under_its_key_and_its_associated_data() {
        let (kek, sealed) = sealed();
        assert_eq!(open(&kek, AAD.as_bytes(), &sealed).expect("opens").as_slice(), PLAINTEXT.as_bytes());
        assert!(open(&kek, b"other", &sealed).is_err());
        assert!(open(&Kek::from_bytes([9; 32]), AAD.as_bytes(), &sealed).is_err());
        let mut foreign = sealed.clone();
        foreign.kek_id = Kek::from_bytes([9; 32]).id().to_owned();
        assert!(open(&kek, AAD.as_bytes(), &foreign).is_err());
    }

    #[test]
    fn every_changed_or_missing_byte_is_refused_with_the_same_words() {
        let (kek, sealed) = sealed();
        let mut damaged = Vec::new();
        for at in 0..sealed.ciphertext.len() {
            let mut copy = sealed.clone();
            copy.ciphertext[at] ^= 1;
            damaged.push(copy);
        }
        for at in 0..sealed.wrapped_dek.len() {
            let mut copy = sealed.clone();
            copy.wrapped_dek[at] ^= 1;
            damaged.push(copy);
        }
        for (nonce, ciphertext, wrapped) in [(11, 33, 60), (12, 15, 60), (12, 0, 60), (12, 33, 59)] {
            let mut copy = sealed.clone();
            copy.nonce.truncate(nonce);
            copy.ciphertext.truncate(ciphertext);
            copy.wrapped_dek.truncate(wrapped);
            damaged.push(copy);
        }
        for copy in damaged {
            let error = open(&kek, AAD.as_bytes(), &copy).expect_err("refused");
            assert_eq!(error.to_string(), "credential could not be read");
        }
    }

    #[test]
    fn two_sealings_of_one_value_share_nothing() {
        let kek = Kek::from_bytes([1; 32]);
        let (a, b) = (seal(&kek, b"x", b"y").expect("sealed"), seal(&kek, b"x", b"y").expect("sealed"));
        assert!(a.nonce != b.nonce && a.ciphertext != b.ciphertext && a.wrapped_dek != b.wrapped_dek);
    }
}
