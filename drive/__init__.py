"""Virtual NVMe/TCP disk in user space: a plain disk, or a TCG Opal 2 self-encrypting one."""
