#!/bin/sh
# make-assets.sh FOLDER CLIP_S: the kernel's source and a clip in FOLDER, and SHA256SUMS, unless they are
# there and right. Says `unchanged` then. What lies in FOLDER under given-kernel or given-clip is taken.
set -eu
folder=$1
clip_s=$2
export LC_ALL=C.UTF-8
umask 022
cd "$folder"

right() { # whether a file is there and as SHA256SUMS says
    [ -e "$1" ] && grep -F -- "  $1" SHA256SUMS 2>/dev/null | sha256sum --status --strict -c -
}

clip=clip.mpg
[ "$clip_s" != 0 ] || clip= # without a clip
if [ ! -e given-kernel ] && [ ! -e given-clip ] &&
    right kernel_tree.tar.gz && right kernel_grep.tar.gz && { [ -z "$clip" ] || right clip.mpg; }; then
    echo unchanged
    exit 0
fi
for name in kernel_tree.tar.gz $clip; do
    if [ -e "$name" ] && ! right "$name"; then
        # Named files replace it; else what nobody has the sum of may be somebody's.
        [ -e SHA256SUMS ] || { echo "$folder/$name is not of this script: remove it, or name it" >&2; exit 1; }
        rm "$name"
    fi
done

refuse() { # the clip that was given, with the reason
    rm -f given-clip given-kernel
    echo "The clip cannot be taken: $1" >&2
    exit 1
}

if [ -e given-clip ]; then # before anything is replaced
    command -v mplayer >/dev/null || refuse "mplayer, which plays it, is not installed. Install its package."
    # Its exit status is 0 even if it plays nothing: it tells the duration of each frame that it decodes.
    mplayer -noconfig all -noconsolecontrols -nolirc -nojoystick -vo null -nosound -benchmark -frames 99 \
        -msglevel all=-1:avsync=7 given-clip </dev/null 2>/dev/null | grep -q 'ftime=[0-9]' ||
        refuse "mplayer decodes no picture of it: it is damaged, has only sound or is in an unknown format. Name another."
fi

newest() { # the last of the distribution's archives: linux-source-6.12.tar.xz, or Ubuntu's in a folder of its own
    find /usr/src -maxdepth 2 -type f -name 'linux-source-*.tar.*' | sort -V | tail -n 1
}

if [ -e given-kernel ]; then
    mv given-kernel kernel_tree.tar.gz
elif [ ! -e kernel_tree.tar.gz ]; then
    source=$(newest)
    [ -n "$source" ] || { echo "there is no linux-source archive in /usr/src" >&2; exit 1; }
    case $source in
        *.xz) unpack="xz -dc" ;;
        *.bz2) unpack="bzip2 -dc" ;;
        *.gz) unpack="gzip -dc" ;;
        *) echo "$source is packed in a way that is not known here" >&2; exit 1 ;;
    esac
    # Two words each, none with a space in it.
    $unpack "$source" | gzip -6 -n >kernel_tree.new
    mv kernel_tree.new kernel_tree.tar.gz
fi
ln -f kernel_tree.tar.gz kernel_grep.tar.gz

if [ -e given-clip ]; then
    mv given-clip clip.mpg
elif [ -n "$clip" ] && [ ! -e clip.mpg ]; then
    ffmpeg -nostdin -loglevel error -y -bitexact -f lavfi -i testsrc2=size=1280x720:rate=25 \
        -f lavfi -i sine=frequency=440:sample_rate=44100 -t "$clip_s" \
        -c:v mpeg2video -b:v 6M -c:a mp2 -b:a 128k -f mpeg clip.new
    mv clip.new clip.mpg
fi
# shellcheck disable=SC2086 # one name or none
sha256sum kernel_tree.tar.gz kernel_grep.tar.gz $clip >SHA256SUMS.new
sync
mv SHA256SUMS.new SHA256SUMS
