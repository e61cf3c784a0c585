#!/bin/sh
# Installs Debian packages into the file system that it runs in, whose files are unpacked but not yet installed: what
# `debootstrap --second-stage` does, and then whatever makes two runs leave the same bytes.
#
# Beside it in the build context: debs/NAME.deb, `required` (names of the packages that are unpacked already),
# `users` (as in /etc/passwd), `directories`, overlay.tar.
set -eu
context=${0%/*}
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true LC_ALL=C
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
: "${SOURCE_DATE_EPOCH:?}"
umask 022

dpkg() {
    command dpkg --force-unsafe-io --force-confold "$@" </dev/null
}

files_of() {
    for name in "$@"; do
        echo "$context/debs/$name.deb"
    done
}

before() {
    cat >/etc/dpkg/dpkg.cfg.d/slim <<'EOF'
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/groff/*
path-exclude=/usr/share/lintian/*
path-exclude=/usr/share/locale/*
path-include=/usr/share/locale/locale.alias
EOF
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    /sbin/ldconfig
}

# These make it possible to install the others; maintainer scripts need an awk before there is one.
install_core() {
    ln -s mawk /usr/bin/awk
    dpkg --force-depends --install $(files_of base-passwd)
    dpkg --force-depends --install $(files_of base-files)
    dpkg --force-depends --install $(files_of dpkg)
    [ -e /etc/localtime ] || ln -s /usr/share/zoneinfo/UTC /etc/localtime
    dpkg --force-depends --install $(files_of libc6)
    dpkg --force-depends --install $(files_of perl-base)
    rm /usr/bin/awk
    dpkg --force-depends --install $(files_of mawk)
    dpkg --force-depends --install $(files_of debconf)
}

install_all() {
    dpkg --force-depends --unpack $(files_of $(cat "$context/required"))
    dpkg --force-depends --force-configure-any --configure --pending
    dpkg --force-depends --skip-same-version --unpack "$context"/debs/*.deb
    dpkg --configure --pending
    faults=$(dpkg --audit)
    if [ -n "$faults" ]; then
        echo "$faults" >&2
        exit 1
    fi
}

# Group 0 owns what its members may write, so that a container can run as any user of that group.
add_users() {
    while IFS=: read -r name _ uid gid _ home shell; do
        getent group "$gid" >/dev/null || groupadd --gid "$gid" "$name"
        useradd --no-log-init --uid "$uid" --gid "$gid" --home-dir "$home" --create-home --shell "$shell" "$name"
        chgrp -R 0 "$home"
        chmod -R g=u "$home"
    done <"$context/users"
    while read -r directory; do
        mkdir -p "$directory"
        chmod g=u "$directory"
    done <"$context/directories"
}

clean() {
    rm -f /usr/sbin/policy-rc.d
    rm -f /var/log/*.log /var/log/apt/* /var/cache/ldconfig/aux-cache /var/cache/apt/*.bin /var/cache/debconf/*-old
    rm -f /var/lib/dpkg/*-old /var/lib/dpkg/lock /var/lib/dpkg/lock-frontend /var/lib/dpkg/triggers/Lock
    rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid- /etc/.pwd.lock
    rm -f /etc/ssh/ssh_host_* /var/lib/dbus/machine-id /var/lib/systemd/catalog/database /usr/share/info/dir
    rm -rf /var/lib/apt/lists/* /var/cache/man/* /var/cache/fontconfig/* /tmp/* /var/tmp/* /run/mount
    [ ! -e /etc/machine-id ] || : >/etc/machine-id
    for section in 1 2 3 4 5 6 7 8; do
        mkdir -p "/usr/share/man/man$section"
    done
    awk -F: -v OFS=: -v day=$((SOURCE_DATE_EPOCH / 86400)) '$3 > day { $3 = day } 1' /etc/shadow >/tmp/shadow
    cat /tmp/shadow >/etc/shadow
    rm /tmp/shadow
}

overlay() {
    tar --extract --file "$context/overlay.tar" --directory / --keep-directory-symlink --same-permissions
}

# What the builder mounts is not ours.
clamp() {
    find / -xdev -mindepth 1 \( -path /proc -o -path /sys -o -path /dev -o -path /etc/hosts -o -path /etc/resolv.conf \) -prune -o \
        -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

before
install_core
install_all
add_users
clean
overlay
clamp
