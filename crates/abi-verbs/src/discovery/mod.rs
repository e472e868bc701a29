//! Which devices there are, what they can do, and the files by which programs find them.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | the list of devices |
//! | `port` | what a device and its port can do |
//! | `sysfs` | the files of a device, as the kernel has them |
//! | `paths`, `folders`, `interface` | what is below /dev/infiniband and /sys/class/infiniband, where this library is preloaded |

pub(crate) mod device;
pub(crate) mod folders;
pub(crate) mod interface;
pub(crate) mod paths;
pub(crate) mod port;
pub(crate) mod sysfs;
