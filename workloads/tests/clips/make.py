"""Make the clips of this folder with ffmpeg: `python3 make.py`. Each shows one way to keep time."""

from __future__ import annotations

import subprocess
from pathlib import Path

SIZE = "64x48"
SCREEN = "settb=1/1000,setpts='floor(PTS+random(0)*9)'"
VARIABLE = "select='lt(t,1)+not(mod(n,6))'"


def ffmpeg(name: str, source: str, *options: str) -> None:
    """Have a clip made from a test picture."""
    quiet = ("ffmpeg", "-v", "error", "-y", "-bitexact", "-f", "lavfi")
    subprocess.run([*quiet, "-i", source, *options, name], check=True)


def remux(source: str, *options: str) -> None:
    """Have a clip put into another container."""
    quiet = ("ffmpeg", "-v", "error", "-y", "-bitexact", "-fflags", "+genpts")
    subprocess.run([*quiet, "-i", source, "-c", "copy", *options], check=True)


def test_picture(rate: str, seconds: float) -> str:
    return f"testsrc2=s={SIZE}:r={rate}:d={seconds}"


def repeat_fields(film: Path) -> None:
    """Flag a film's frames for 3:2 pulldown: every second one shows three fields."""
    data, at, picture = bytearray(film.read_bytes()), 0, 0
    while (at := data.find(b"\0\0\1", at)) >= 0:
        code, kind = data[at + 3], data[at + 4] >> 4
        if code == 0xB3:
            data[at + 7] = data[at + 7] & 0xF0 | 4  # 30000/1001
        elif code == 0xB5 and kind == 1:
            data[at + 5] &= ~0x08  # no progressive sequence
        elif code == 0xB5 and kind == 8:
            top, repeated = [(1, 1), (0, 0), (0, 1), (1, 0)][picture % 4]
            data[at + 7] = data[at + 7] & ~0x82 | top << 7 | repeated << 1 | 0x40
            data[at + 8] |= 0x80
            picture += 1
        at += 3
    film.write_bytes(data)


def main() -> None:
    """Make all of them."""
    tone = ("-f", "lavfi", "-i", "sine=d=3:r=8000", "-ac", "1", "-b:a", "8k")
    h264 = ("-c:v", "libx264", "-preset", "veryslow", "-crf", "40")
    mpeg2 = ("-c:v", "mpeg2video", "-qscale:v", "31")
    ffmpeg("h264.mp4", test_picture("25", 3), *tone, *h264, "-c:a", "aac")
    ffmpeg("fragmented.mp4", test_picture("25", 3), *h264, "-movflags", "frag_keyframe+empty_moov")
    # Time stamps for twice the frames: every second one is empty.
    remux("h264.mp4", "-an", "empty-frames.avi")
    variable = ("-vf", VARIABLE, "-fps_mode", "vfr", "-c:v", "mpeg4", "-qscale:v", "31")
    ffmpeg("variable.mkv", test_picture("60", 3), *variable)
    screen = ("-vf", SCREEN, "-fps_mode", "passthrough", "-enc_time_base", "1/1000")
    ffmpeg("screen.mkv", test_picture("30", 3), *screen, *h264)
    vp9 = ("-c:v", "libvpx-vp9", "-crf", "60", "-b:v", "0", "-output_ts_offset", "100")
    ffmpeg("late.webm", test_picture("60000/1001", 3), *vp9)
    film = Path("film.m2v")
    ffmpeg(film.name, test_picture("24000/1001", 3), *mpeg2, "-bf", "0", "-f", "mpeg2video")
    repeat_fields(film)
    remux(film.name, "-f", "vob", "telecine.mpg")
    film.unlink()
    ffmpeg("slides.mkv", test_picture("1/4", 12), "-c:v", "mjpeg", "-qscale:v", "31")
    ffmpeg("sound.mka", "sine=d=3:r=8000", "-ac", "1", "-b:a", "8k", "-c:a", "mp2")


if __name__ == "__main__":
    main()
