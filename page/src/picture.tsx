// Picture for a request: read, made small and drawn without an address, which the page's policy would refuse.

import { useEffect, useRef } from "preact/hooks";

export type Picture = { name: string; url: string; canvas: HTMLCanvasElement };

/** Models see about this much of a picture; a larger one only makes the request long. */
const MOST = 1568;

/** The picture as JPEG without the data that a camera adds. */
export async function shrink(file: File): Promise<Picture> {
  const image = await createImageBitmap(file);
  const scale = Math.min(1, MOST / Math.max(image.width, image.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(image.width * scale));
  canvas.height = Math.max(1, Math.round(image.height * scale));
  const pen = canvas.getContext("2d")!;
  // JPEG has no transparency.
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  image.close();
  return { name: file.name, url: canvas.toDataURL("image/jpeg", 0.9), canvas };
}

export function Thumbnail({ picture }: { picture: Picture }) {
  const shown = useRef<HTMLCanvasElement>(null);
  const { canvas } = picture;
  const scale = Math.min(1, 160 / Math.max(canvas.width, canvas.height));
  const [width, height] = [Math.max(1, canvas.width * scale), Math.max(1, canvas.height * scale)];
  useEffect(() => shown.current?.getContext("2d")?.drawImage(canvas, 0, 0, width, height), [canvas]);
  return <canvas ref={shown} width={width} height={height} role="img" aria-label={picture.name} />;
}
