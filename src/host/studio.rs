//! The key of Studio, which both sides derive and nobody sends (spec: security, section 2).

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// Name of Studio's principal.
pub const STUDIO: &str = "studio";

/// HMAC-SHA256 under the admin key's text of `nylorun/studio/v1`, NUL, and the Tenant's id; lowercase hexadecimal.
#[must_use]
pub fn studio_key(admin_key: &SecretString, tenant: &str) -> SecretString {
    let message = format!("nylorun/studio/v1\0{tenant}");
    SecretString::from(hex::encode(hmac_sha256(admin_key.expose_secret().as_bytes(), message.as_bytes())))
}

/// RFC 2104 over SHA-256.
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let mut block = [0_u8; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4231_hold() {
        let vectors: [(&[u8], &[u8], &str); 3] = [
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, message, expected) in vectors {
            assert_eq!(hex::encode(hmac_sha256(key, message)), expected);
        }
    }

    #[test]
    fn each_tenant_and_each_admin_key_has_its_own() {
        let (a, b) = (SecretString::from("a".repeat(64)), SecretString::from("b".repeat(64)));
        let key = |admin, tenant| studio_key(admin, tenant).expose_secret().to_owned();
        assert_eq!(key(&a, "tn_1").len(), 64);
        assert_ne!(key(&a, "tn_1"), key(&a, "tn_2"));
        assert_ne!(key(&a, "tn_1"), key(&b, "tn_1"));
    }
}
