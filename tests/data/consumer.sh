#!/bin/sh
# What is signed about an image, by cosign, curl and a public key alone:
#   consumer.sh REGISTRY/REPOSITORY@sha256:… KEY.pub [TYPE]
# Logs in where `~/.netrc` says how.
# Prints `digest-of-the-manifest predicate-type result` for each statement that the key signed about this digest.
# Exits 0 only when one of them has the predicate type TYPE: a signature of the digest itself, unless another is named.
set -eu
[ $# -ge 2 ] || { echo "usage: consumer.sh REGISTRY/REPOSITORY@sha256:… KEY.pub [TYPE]" >&2; exit 2; }
ref=$1 key=$(realpath "$2") wanted=${3:-https://sigstore.dev/cosign/sign/v1}
host=${ref%%/*} digest=${ref#*@} path=${ref#*/}
[ -f "$key" ] || { echo "there is no key \`$2\`" >&2; exit 2; }
case $digest in sha256:*) ;; *) echo "\`$ref\` names no digest: write REGISTRY/REPOSITORY@sha256:…" >&2; exit 2 ;; esac
case $host in localhost:* | 127.*) scheme=http ;; *) scheme=https ;; esac
url=$scheme://$host/v2/${path%@*}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
get() { curl --silent --show-error --fail --location --netrc-optional --max-filesize 20000000 "$@"; }
sha() { test "sha256:$(sha256sum "$1" | cut -d ' ' -f 1)" = "$2"; }
index=application/vnd.oci.image.index.v1+json manifest=application/vnd.oci.image.manifest.v1+json
get "$url/referrers/$digest" -o list 2>/dev/null || # a registry without a list has a tag in its place
    get -H "Accept: $index" "$url/manifests/sha256-${digest#sha256:}" -o list || exit 1
python3 -c 'import json
for one in json.load(open("list"))["manifests"]: print(one["digest"])' | sort -u >manifests
cosign trusted-root create --out root.json # empty: there is no log to ask
found=1
while read -r each; do
    get -H "Accept: $manifest" "$url/manifests/$each" -o manifest && sha manifest "$each" || continue
    blob=$(python3 -c 'import json; print(json.load(open("manifest"))["layers"][0]["digest"])' 2>/dev/null) || continue
    get "$url/blobs/$blob" -o bundle && sha bundle "$blob" || continue
    python3 -c 'import base64, json
told = json.loads(base64.b64decode(json.load(open("bundle"))["dsseEnvelope"]["payload"]))
print(told["predicateType"], told["predicate"].get("result", "-"))' >told 2>/dev/null || continue
    read -r type result <told
    # the type must be checked: a failed test is a good signature too
    cosign verify-blob-attestation --key "$key" --bundle bundle --type "$type" --digest "${digest#*:}" --digestAlg sha256 \
        --insecure-ignore-tlog=true --trusted-root root.json 2>/dev/null || continue
    echo "$each $type $result"
    if [ "$type" = "$wanted" ]; then found=0; fi
done <manifests
[ $found -eq 0 ] || echo "nothing of the type $wanted about $digest is signed by \`$2\`" >&2
exit $found
