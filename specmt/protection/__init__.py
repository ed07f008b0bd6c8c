"""What must not be translated comes out unchanged, and terms as required: around translation, whatever runs inside."""
