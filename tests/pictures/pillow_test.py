#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures are read and resized as Pillow does; broken files are refused."""

import io
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
    from PIL import Image, ImageOps
except ImportError:
    print("numpy or Pillow is not here")
    sys.exit(77)

DRIVER = pathlib.Path(os.environ["REGARD_BINARY_DIR"]) / "bin" / "picture_driver"


def colours(width, height, channels=3, seed=1):
    """Smooth in some parts and noise in others."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [np.sin(x / (3 + c)) * np.cos(y / (5 - c)) * 120 + 128 for c in range(channels)]
    picture = np.stack(planes, -1) + rng.normal(0, 8, (height, width, channels))
    return np.clip(picture, 0, 255).astype(np.uint8)


class PicturesAsPillow(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.driver = subprocess.Popen([DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(self.end)

    def end(self):
        self.driver.stdin.close()
        self.driver.stdout.close()
        self.assertEqual(self.driver.wait(), 0)

    def path(self, name):
        return pathlib.Path(self.folder.name) / name

    def ours(self, path, *numbers):
        self.driver.stdin.write(" ".join(map(str, (path, *numbers))).encode() + b"\n")
        self.driver.stdin.flush()
        line = self.driver.stdout.readline().decode().rstrip("\n")
        if line.startswith("error "):
            return line[6:]
        width, height = map(int, line.split())
        data = self.driver.stdout.read(width * height * 3)
        return np.frombuffer(data, np.uint8).reshape(height, width, 3)

    def assert_same(self, ours, theirs, off=0):
        self.assertNotIsInstance(ours, str, ours)
        theirs = np.asarray(theirs)
        self.assertEqual(ours.shape, theirs.shape)
        self.assertLessEqual(np.abs(ours.astype(int) - theirs).max(), off)

    def test_jpeg(self):
        # Each has a decoder of its own build: a step of rounding may differ.
        for name, options in {"plain": {}, "progressive": {"progressive": True},
                              "whole": {"subsampling": 0}, "poor": {"quality": 30}}.items():
            path = self.path(f"{name}.jpg")
            Image.fromarray(colours(97, 61)).save(path, **options)
            self.assert_same(self.ours(path), Image.open(path).convert("RGB"), 2)

    def test_grey_and_cmyk_jpeg(self):
        grey = self.path("grey.jpg")
        Image.fromarray(colours(33, 21, 1)[..., 0]).save(grey)
        self.assert_same(self.ours(grey), Image.open(grey).convert("RGB"), 1)
        cmyk = self.path("cmyk.jpg")
        Image.fromarray(colours(33, 21, 4), "CMYK").save(cmyk, quality=95)
        self.assert_same(self.ours(cmyk), Image.open(cmyk).convert("RGB"), 2)
        # Without Adobe's marker, which says that inks are inverted.
        data = cmyk.read_bytes()
        begin = data.index(b"\xff\xee")
        end = begin + 2 + int.from_bytes(data[begin + 2:begin + 4], "big")
        bare = self.path("bare.jpg")
        bare.write_bytes(data[:begin] + data[end:])
        self.assert_same(self.ours(bare), Image.open(bare).convert("RGB"), 2)

    def test_every_orientation(self):
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[0x0112] = orientation
            picture = Image.fromarray(colours(40, 24))
            for ending, options, off in (("jpg", {}, 2), ("png", {}, 0), ("webp", {"lossless": True}, 0)):
                path = self.path(f"{orientation}.{ending}")
                picture.save(path, exif=exif, **options)
                self.assert_same(self.ours(path), ImageOps.exif_transpose(Image.open(path)).convert("RGB"), off)

    def test_an_orientation_of_any_type_of_numbers(self):
        picture = Image.fromarray(colours(40, 24))
        for order, start in (("<", b"II*\0"), (">", b"MM\0*")):
            for kind, value in ((3, "HH"), (4, "I")):
                numbers = (6, 0) if kind == 3 else (6,)
                exif = start + struct.pack(f"{order}IHHHI{value}I", 8, 1, 0x0112, kind, 1, *numbers, 0)
                path = self.path(f"{kind}.png")
                picture.save(path, exif=exif)
                theirs = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
                self.assertEqual(theirs.size, (24, 40))
                self.assert_same(self.ours(path), theirs)

    def test_png(self):
        base = Image.fromarray(colours(31, 17))
        kinds = {
            "rgb": base, "grey": base.convert("L"), "bits": base.convert("1"),
            "palette": base.quantize(16), "large_palette": base.quantize(200),
        }
        for name, picture in kinds.items():
            path = self.path(f"{name}.png")
            picture.save(path)
            self.assert_same(self.ours(path), Image.open(path).convert("RGB"))

    def test_png_of_16_bits(self):
        path = self.path("deep.png")
        deep = (colours(9, 7, 1)[..., 0].astype(np.uint16) << 8) + 77
        Image.fromarray(deep).save(path)
        self.assert_same(self.ours(path), np.repeat((deep >> 8)[..., None], 3, -1))

    def test_transparent_pixels_lie_on_white(self):
        rgba = Image.fromarray(colours(25, 19, 4))
        white = Image.new("RGB", rgba.size, "white")
        white.paste(rgba, mask=rgba.getchannel("A"))
        rgba.save(self.path("clear.png"))
        self.assert_same(self.ours(self.path("clear.png")), white)
        rgba.save(self.path("clear.webp"), lossless=True, exact=True)
        self.assert_same(self.ours(self.path("clear.webp")), white)
        palette = Image.fromarray(colours(25, 19)).quantize(8)
        palette.save(self.path("hole.png"), transparency=3)
        shown = Image.open(self.path("hole.png")).convert("RGBA")
        white = Image.new("RGB", shown.size, "white")
        white.paste(shown, mask=shown.getchannel("A"))
        self.assert_same(self.ours(self.path("hole.png")), white)

    def test_webp(self):
        for options in ({}, {"lossless": True}):
            path = self.path("a.webp")
            Image.fromarray(colours(50, 30)).save(path, **options)
            self.assert_same(self.ours(path), Image.open(path).convert("RGB"), 1)

    def test_resize_has_the_same_bits(self):
        path = self.path("a.png")
        picture = Image.fromarray(colours(101, 67))
        picture.save(path)
        for size in ((101, 67), (50, 33), (7, 5), (1, 1), (224, 224), (101, 20), (13, 67), (300, 150)):
            self.assert_same(self.ours(path, *size), picture.resize(size, Image.Resampling.BILINEAR))

    def test_resize_and_crop(self):
        # The arithmetic of torchvision's Resize and CenterCrop.
        for width, height in ((101, 67), (67, 101), (64, 64), (33, 200), (3, 9000), (9000, 2), (48, 48)):
            path = self.path("b.png")
            picture = Image.fromarray(colours(width, height))
            picture.save(path)
            for side in (48, 81):
                short = min(width, height)
                size = (side, int(side * height / short)) if width < height else (int(side * width / short), side)
                left, top = (int(round((n - side) / 2)) for n in size)
                want = picture.resize(size, Image.Resampling.BILINEAR).crop((left, top, left + side, top + side))
                self.assert_same(self.ours(path, side), want)

    def test_a_long_narrow_picture_is_cropped_like_any_other(self):
        side = 224  # The whole would be 67 million lines long, or more.
        for size in ((1, 600000), (600000, 2)):
            path = self.path("narrow.png")
            picture = Image.fromarray(colours(*size))
            picture.save(path)
            short = min(size)
            middle = [0 if n == short else (n - short) / 2 for n in size]
            box = (*middle, *(m + short for m in middle))
            # Pillow resizes a part of a picture with what lies around it, with other roundings.
            self.assert_same(self.ours(path, side), picture.resize((side, side), Image.Resampling.BILINEAR, box), 1)

    def test_sizes_that_need_too_much_memory_are_refused(self):
        path = self.path("narrow.png")
        Image.fromarray(colours(1, 600000)).save(path)
        self.assertIn("a picture of 1 x 600000 was to become 1048576 x 1", self.ours(path, 1 << 20, 1))
        self.assertIn("its side was to become 11586", self.ours(path, 11586))

    def test_cut_files_are_refused(self):
        picture = Image.fromarray(colours(40, 30))
        for kind in ("jpeg", "png", "webp"):
            data = io.BytesIO()
            picture.save(data, kind)
            whole = data.getvalue()
            path = self.path("cut")
            for length in [*range(0, 64), *range(64, len(whole) - 20, 37)]:
                path.write_bytes(whole[:length])
                answer = self.ours(path)
                self.assertIsInstance(answer, str, f"{kind} of {length} bytes of {len(whole)}")
                self.assertTrue(answer.startswith(f"read_picture: '{path}'"), answer)

    def test_damaged_files_do_no_harm(self):
        rng = np.random.default_rng(3)
        picture = Image.fromarray(colours(40, 30))
        for kind in ("jpeg", "png", "webp"):
            data = io.BytesIO()
            picture.save(data, kind)
            for _ in range(200):
                broken = bytearray(data.getvalue())
                for place in rng.integers(2, len(broken), 4):
                    broken[place] = rng.integers(256)
                self.path("broken").write_bytes(broken)
                self.ours(self.path("broken"))

    def test_claims_of_size_are_refused_before_memory_is_taken(self):
        data = io.BytesIO()
        Image.fromarray(colours(8, 8)).save(data, "png")
        huge = bytearray(data.getvalue())
        huge[16:24] = b"\x00\x0f\xff\xff" * 2
        import zlib
        huge[29:33] = zlib.crc32(bytes(huge[12:29])).to_bytes(4, "big")
        self.path("huge").write_bytes(huge)
        self.assertIn("it says 1048575 x 1048575", self.ours(self.path("huge")))

    def test_other_files(self):
        self.path("a.gif").write_bytes(b"GIF89a")
        self.assertIn("it begins like none of them", self.ours(self.path("a.gif")))
        self.assertIn("read_picture", self.ours(self.path("nowhere.png")))
        os.mkfifo(self.path("pipe.png"))
        self.assertIn("it is not a regular file", self.ours(self.path("pipe.png")))
        frames = [Image.fromarray(colours(8, 8, seed=s)) for s in (1, 2)]
        frames[0].save(self.path("film.webp"), save_all=True, append_images=frames[1:])
        self.assertIn("it is an animation", self.ours(self.path("film.webp")))


if __name__ == "__main__":
    unittest.main()
