//! Device discovery: the list of devices, their attributes, and the files by which programs find them.
//!
//! | file | contents |
//! |---|---|
//! | `device` | the list of devices |
//! | `port` | attributes of a device and its port |
//! | `sysfs` | the files of a device, in the kernel's format |
//! | `paths`, `folders`, `interface` | /dev/infiniband and /sys/class/infiniband, where this library is preloaded |

pub(crate) mod device;
pub(crate) mod folders;
pub(crate) mod interface;
pub(crate) mod paths;
pub(crate) mod port;
pub(crate) mod sysfs;
