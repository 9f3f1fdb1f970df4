//! A plotting backend that draws pixels and a bitmap font.

use font8x8::legacy::BASIC_LEGACY;
use plotters::backend::BitMapBackend;
use plotters::prelude::DrawingBackend;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingErrorKind, FontTransform,
};

/// Width and height of a letter in pixels: the font's rows are drawn twice.
const LETTER: (i32, i32) = (8, 16);

/// An image with three bytes per pixel.
pub(super) struct Bitmap<'a> {
    pixels: BitMapBackend<'a>,
}

impl<'a> Bitmap<'a> {
    pub(super) fn new(pixels: &'a mut [u8], size: (u32, u32)) -> Self {
        Self {
            pixels: BitMapBackend::with_buffer(pixels, size),
        }
    }
}

/// Encodes the pixels as a PNG file.
pub(super) fn encode(pixels: &[u8], size: (u32, u32)) -> Result<Vec<u8>, String> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
    writer
        .write_image_data(pixels)
        .and_then(|()| writer.finish())
        .map_err(|error| error.to_string())?;
    Ok(file)
}

impl DrawingBackend for Bitmap<'_> {
    type ErrorType = <BitMapBackend<'static> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.pixels.get_size()
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.pixels.ensure_prepared()
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.pixels.present()
    }

    fn draw_pixel(
        &mut self,
        point: BackendCoord,
        colour: BackendColor,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.pixels.draw_pixel(point, colour)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.pixels.draw_line(from, to, style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.pixels.draw_rect(upper_left, bottom_right, style, fill)
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        at: BackendCoord,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        let width = i32::try_from(text.chars().count()).unwrap_or(0) * LETTER.0;
        let left = match style.anchor().h_pos {
            HPos::Left => 0,
            HPos::Right => -width,
            HPos::Center => -width / 2,
        };
        let top = match style.anchor().v_pos {
            VPos::Top => 0,
            VPos::Center => -LETTER.1 / 2,
            VPos::Bottom => -LETTER.1,
        };
        for (index, letter) in text.chars().enumerate() {
            let x = left + i32::try_from(index).unwrap_or(0) * LETTER.0;
            self.draw_letter(letter, (x, top), style, at)?;
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        _: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Self::ErrorType>> {
        let letters = u32::try_from(text.chars().count()).unwrap_or(0);
        Ok((letters * LETTER.0.unsigned_abs(), LETTER.1.unsigned_abs()))
    }
}

impl Bitmap<'_> {
    /// Draws one letter at `offset` within a text that starts at `at` and may be rotated around it.
    fn draw_letter<S: BackendTextStyle>(
        &mut self,
        letter: char,
        offset: BackendCoord,
        style: &S,
        at: BackendCoord,
    ) -> Result<(), DrawingErrorKind<<Self as DrawingBackend>::ErrorType>> {
        let glyph = BASIC_LEGACY.get(letter as usize);
        let rows = glyph.unwrap_or(&BASIC_LEGACY['?' as usize]);
        let turn: FontTransform = style.transform();
        let (width, height) = self.get_size();
        for (y, row) in (0..LETTER.1).map(|y| (y, rows[(y / 2) as usize])) {
            for x in (0..LETTER.0).filter(|x| row >> x & 1 == 1) {
                let (dx, dy) = turn.transform(offset.0 + x, offset.1 + y);
                let point = (at.0 + dx, at.1 + dy);
                let inside = |at: i32, size: u32| u32::try_from(at).is_ok_and(|at| at < size);
                if inside(point.0, width) && inside(point.1, height) {
                    self.pixels.draw_pixel(point, style.color())?;
                }
            }
        }
        Ok(())
    }
}
