#!/bin/sh
# Adds Debian packages to the file system that it runs in, as root and without network, and leaves the same bytes each time.
#
# Beside it: debs/NAME.deb, `epoch` (seconds of SOURCE_DATE_EPOCH). In a Dockerfile:
#   RUN --mount=type=bind,from=packages,target=/packages --network=none ["/bin/sh", "/packages/install.sh"]
set -eu
context=${0%/*}
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true LC_ALL=C HOME=/root
# A configuration file that the image has already stays, also where a package asks for it by ucf; asked, that notes a random name.
export UCF_FORCE_CONFFOLD=1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
SOURCE_DATE_EPOCH=$(cat "$context/epoch")
export SOURCE_DATE_EPOCH
umask 022
policy=/usr/sbin/policy-rc.d

dpkg() {
    command dpkg --force-unsafe-io --force-confold "$@" </dev/null
}

# No service starts; a policy that the image has already stays.
forbid_services() {
    if [ -e "$policy" ]; then
        policy=
    else
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
}

install_all() {
    dpkg --force-depends --unpack "$context"/debs/*.deb
    dpkg --configure --pending
    faults=$(dpkg --audit)
    if [ -n "$faults" ]; then
        echo "$faults" >&2
        exit 1
    fi
}

# What the layers below have is written only where it must become another, or the layer would hold it a second time.
clean() {
    [ -z "$policy" ] || rm "$policy"
    rm -f /var/log/*.log /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old
    rm -f /var/lib/dpkg/*-old /var/lib/dpkg/lock /var/lib/dpkg/lock-frontend /var/lib/dpkg/triggers/Lock
    rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid- /etc/.pwd.lock
    rm -f /etc/ssh/ssh_host_* /var/lib/dbus/machine-id /var/lib/systemd/catalog/database /usr/share/info/dir
    rm -rf /var/cache/man/* /var/cache/fontconfig/* /tmp/* /var/tmp/* /run/mount /run/adduser
    [ ! -s /etc/machine-id ] || : >/etc/machine-id
    awk -F: -v OFS=: -v day=$((SOURCE_DATE_EPOCH / 86400)) '$3 > day { $3 = day } 1' /etc/shadow >/tmp/shadow
    cmp -s /tmp/shadow /etc/shadow || cat /tmp/shadow >/etc/shadow
    rm /tmp/shadow
}

forbid_services
install_all
clean
