//! Descriptors that travel over a Unix socket from one process to another.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Most descriptors of one message.
pub const MOST: usize = 12;

/// Sends descriptors, with one byte: a message without any would not arrive.
///
/// # Errors
/// The system's.
pub fn send(socket: impl AsFd, descriptors: &[OwnedFd], flags: MsgFlags) -> io::Result<()> {
    let raw: Vec<RawFd> = descriptors.iter().map(|descriptor| descriptor.as_raw_fd()).collect();
    let (rights, byte) = ([ControlMessage::ScmRights(&raw)], [IoSlice::new(b"h")]);
    let flags = flags | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(socket.as_fd().as_raw_fd(), &byte, &rights, flags, None)?;
    Ok(())
}

/// The descriptors of the next message, at most [`MOST`]; `None` at the end.
///
/// # Errors
/// The system's.
pub fn receive(socket: impl AsFd) -> io::Result<Option<Vec<OwnedFd>>> {
    let (mut byte, mut space) = ([0], cmsg_space!([RawFd; MOST]));
    let mut into = [IoSliceMut::new(&mut byte)];
    let socket = socket.as_fd().as_raw_fd();
    let message = recvmsg::<()>(socket, &mut into, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(rights) = message {
            // SAFETY: the kernel has just made these descriptors for this process; nobody else has them.
            #[allow(unsafe_code)]
            descriptors.extend(rights.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok(Some(descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_arrives_is_the_same_file_and_the_end_is_told() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut reads, writes) = io::pipe().unwrap();
        send(&one, &[writes.into()], MsgFlags::empty()).unwrap();
        let arrived = receive(&other).unwrap().unwrap();
        for descriptor in arrived {
            File::from(descriptor).write_all(b"here").unwrap();
        }
        let mut said = String::new();
        reads.read_to_string(&mut said).unwrap();
        assert_eq!(said, "here");
        drop(one);
        assert!(receive(&other).unwrap().is_none());
    }
}
